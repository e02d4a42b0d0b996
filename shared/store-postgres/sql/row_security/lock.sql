-- Lets one transaction at a time set up the separation of tenants.
SELECT pg_advisory_xact_lock(7737423, 2)::text AS locked
