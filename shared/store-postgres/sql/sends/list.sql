-- Reads a page of a tenant's sends, newest first.
-- Index: sends_pkey backwards; sends_session backwards for one session; sends_not_completed where $6
-- is false, as it may be for failed and cancelled ones.
SELECT
    0::bigint AS ord, {s.send}
FROM sends s
WHERE s.tenant = $1::integer
  AND ($2::uuid IS NULL OR s.session_id = $2::uuid)
  AND ($3::text IS NULL OR s.status = $3::text)
  AND ($4::uuid IS NULL OR s.send_id < $4::uuid)
  AND ($6::boolean OR s.stop_reason <> 'end')
ORDER BY s.send_id DESC
LIMIT $5::bigint
