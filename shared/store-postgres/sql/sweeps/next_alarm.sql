-- Reads when the next alarm is due, but for tenants that are not here: those that are due are not served here, and would be
-- looked for without a pause.
-- Index: sends_alarm, tenants_away_pkey.
SELECT s.alarm_at FROM sends s
WHERE s.alarm_at IS NOT NULL
  AND NOT EXISTS (SELECT FROM tenants_away w WHERE w.tenant = s.tenant)
ORDER BY s.alarm_at
LIMIT 1
