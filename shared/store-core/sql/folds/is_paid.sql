-- Whether a step has stored the cost of a call.
SELECT u.attempt
FROM usage_rows u
WHERE u.tenant = $1 AND u.send_id = $2 AND u.round = $3 AND u.attempt = $4;
