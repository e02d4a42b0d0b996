-- One transaction at a time starts leaves of a tenant whose leaves are bounded. The first number
-- keeps these locks apart from all others.
SELECT t.tenant, pg_advisory_xact_lock(7221, t.tenant) AS locked
FROM (SELECT DISTINCT u.tenant FROM unnest($1::integer[]) AS u (tenant) ORDER BY 1) AS t
