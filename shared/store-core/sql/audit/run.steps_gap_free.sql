-- Runs whose advances are not numbered from 1 without gaps up to their step.
SELECT json_object('run', 'run_' || lower(hex(r.run_id)), 'steps', count(t.n), 'step', r.step)
FROM runs r
LEFT JOIN run_steps t ON t.tenant = r.tenant AND t.run_id = r.run_id
GROUP BY r.tenant, r.run_id, r.step
HAVING count(t.n) <> r.step OR coalesce(min(t.n), 1) <> 1 OR coalesce(max(t.n), 0) <> r.step
ORDER BY r.tenant, r.run_id
LIMIT $1;
