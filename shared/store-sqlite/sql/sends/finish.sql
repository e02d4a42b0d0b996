-- A send is final. Sums that are not given stay.
UPDATE sends
SET status = $3, stop_reason = $4, output_text = $5, output = $6, error = $7, finished_at = $8,
    usage = coalesce($9, usage), rounds = coalesce($10, rounds),
    attempts = coalesce($11, attempts), waiting_on = NULL, alarm_at = NULL
WHERE tenant = $1 AND send_id = $2;
