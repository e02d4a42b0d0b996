-- As lock_bound.sql, for whoever waited in vain: the tenants whose leaves nobody else starts.
SELECT t.tenant
FROM (SELECT DISTINCT u.tenant FROM unnest($1::integer[]) AS u (tenant) ORDER BY 1) AS t
WHERE pg_try_advisory_xact_lock(7221, t.tenant)
