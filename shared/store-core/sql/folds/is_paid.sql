-- Whether a step has stored what a call cost.
SELECT u.attempt
FROM usage_rows u
WHERE u.tenant = $1 AND u.send_id = $2 AND u.round = $3 AND u.attempt = $4;
