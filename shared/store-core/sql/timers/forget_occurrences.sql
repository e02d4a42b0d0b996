-- Removes occurrences whose fate was stored before $1, at most $2, oldest first.
DELETE FROM timer_occurrences WHERE (tenant, timer_id, n) IN (
    SELECT tenant, timer_id, n FROM timer_occurrences
    WHERE fired_at < $1
    ORDER BY fired_at
    LIMIT $2
);
