-- The sums of a send after a round; its crash count starts again.
UPDATE sends SET usage = $3, rounds = $4, attempts = $5, crashes = 0
WHERE tenant = $1 AND send_id = $2;
