-- Whether a tenant has sessions or runs.
-- Index: the primary keys.
SELECT EXISTS (SELECT FROM sessions s WHERE s.tenant = $1::integer)
    OR EXISTS (SELECT FROM runs r WHERE r.tenant = $1::integer) AS used
