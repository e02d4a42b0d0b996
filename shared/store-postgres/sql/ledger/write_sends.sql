-- Writes the changes of sends whose hot rows are locked.
-- Index: sends_pkey.
UPDATE sends s SET
    position = i.position,
    status = i.status,
    waiting_on = i.waiting_on,
    stop_reason = i.stop_reason,
    error = i.error,
    cancel_requested = i.cancel_requested,
    alarm_at = i.alarm_at,
    finished_at = i.finished_at
FROM unnest(
    $1::integer[], $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[],
    $8::boolean[], $9::bigint[], $10::bigint[]
) AS i (
    tenant, send_id, position, status, waiting_on, stop_reason, error, cancel_requested,
    alarm_at, finished_at
)
WHERE s.tenant = i.tenant AND s.send_id = i.send_id
