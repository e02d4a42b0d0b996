-- Reads when the next alarm is due, except for tenants that are not here: their due alarms are not
-- handled here, and would be looked for again and again.
-- Index: sends_alarm, tenants_away_pkey.
SELECT s.alarm_at FROM sends s
WHERE s.alarm_at IS NOT NULL
  AND NOT EXISTS (SELECT FROM tenants_away w WHERE w.tenant = s.tenant)
ORDER BY s.alarm_at
LIMIT 1
