-- Part of a step: the sums of a send after a round. Its crash count starts again, unless all that
-- happened is that more model calls were begun.
UPDATE sends
SET crashes = CASE WHEN $25 = rounds AND $26 > attempts THEN crashes ELSE 0 END,
    "usage" = $24, rounds = $25, attempts = $26
WHERE tenant = $1 AND send_id = $16;
