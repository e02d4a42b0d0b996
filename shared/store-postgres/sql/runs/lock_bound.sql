-- Lets one transaction at a time start leaves of a tenant that limits its leaves. The first number
-- keeps these locks apart from all others.
SELECT t.tenant, pg_advisory_xact_lock(7221, t.tenant) AS locked
FROM (SELECT DISTINCT u.tenant FROM unnest($1::integer[]) AS u (tenant) ORDER BY 1) AS t
