-- Lets one transaction at a time fence the tables.
SELECT pg_advisory_xact_lock(7737423, 4)::text AS locked
