-- Every occurrence.
SELECT tenant, timer_id, n, due_at, fate, send_id, fired_at
FROM timer_occurrences
ORDER BY tenant, timer_id, n;
