-- Attempts of leaves with more than one send.
SELECT json_object('run', 'run_' || lower(hex(s.run_id)), 'path', s.run_path,
                   'attempt', s.run_attempt, 'sends', count(*))
FROM sends s
WHERE s.run_id IS NOT NULL
GROUP BY s.tenant, s.run_id, s.run_path, s.run_attempt
HAVING count(*) > 1
ORDER BY s.tenant, s.run_id, s.run_path, s.run_attempt
LIMIT $1;
