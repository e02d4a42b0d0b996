-- Every occurrence.
SELECT tenant, timer_id, {occurrence}
FROM timer_occurrences
ORDER BY tenant, timer_id, n;
