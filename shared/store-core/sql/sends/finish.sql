-- Part of a step: a send is final. Sums that are not given stay.
UPDATE sends
SET status = $27, stop_reason = $28, output_text = $29, output = $30, error = $31,
    finished_at = $20, "usage" = coalesce($24, "usage"), rounds = coalesce($25, rounds),
    attempts = coalesce($26, attempts), waiting_on = NULL, alarm_at = NULL
WHERE tenant = $1 AND send_id = $16;
