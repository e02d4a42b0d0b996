-- Like lock_bound.sql, for a caller that waited in vain: takes the locks that are free, and returns
-- their tenants.
SELECT t.tenant
FROM (SELECT DISTINCT u.tenant FROM unnest($1::integer[]) AS u (tenant) ORDER BY 1) AS t
WHERE pg_try_advisory_xact_lock(7221, t.tenant)
