-- Part of a step: the sums of a send after a round. Its crash count starts again.
UPDATE sends SET usage = $24, rounds = $25, attempts = $26, crashes = 0
WHERE tenant = $1 AND send_id = $16;
