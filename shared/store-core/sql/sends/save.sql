-- Writes a send after a change; its outcome and usage only if the change sets them.
UPDATE sends
SET status = $24, waiting_on = $25, position = $26, alarm_at = $27, rounds = $28, attempts = $29,
    crashes = $30, cancel_requested = $31, started_at = $32, finished_at = $33,
    stop_reason = coalesce($34, stop_reason), output_text = coalesce($35, output_text),
    output = coalesce($36, output), error = coalesce($37, error), "usage" = coalesce($38, "usage")
WHERE tenant = $1 AND send_id = $18;
