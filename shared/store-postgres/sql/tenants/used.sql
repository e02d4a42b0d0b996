-- Whether a tenant has sessions or runs, or timers that may still start some.
-- Index: the primary keys.
SELECT EXISTS (SELECT FROM sessions s WHERE s.tenant = $1::integer)
    OR EXISTS (SELECT FROM runs r WHERE r.tenant = $1::integer)
    OR EXISTS (
        SELECT FROM timers t WHERE t.tenant = $1::integer AND t.ended_at IS NULL
    ) AS used
