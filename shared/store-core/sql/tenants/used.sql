-- Whether a tenant has sessions or runs, by their primary keys.
SELECT EXISTS (SELECT 1 FROM sessions WHERE tenant = $1)
    OR EXISTS (SELECT 1 FROM runs WHERE tenant = $1) AS used;
