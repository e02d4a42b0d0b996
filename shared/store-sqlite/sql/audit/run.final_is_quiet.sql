-- Final runs with sends that are under way.
SELECT json_object('run', 'run_' || lower(hex(r.run_id)), 'status', r.status, 'live', count(*))
FROM sends s
JOIN runs r ON r.tenant = s.tenant AND r.run_id = s.run_id
WHERE s.run_id IS NOT NULL AND s.finished_at IS NULL AND r.finished_at IS NOT NULL
GROUP BY r.tenant, r.run_id, r.status
ORDER BY r.tenant, r.run_id
LIMIT $1;
