-- Lets one transaction at a time add the extension.
SELECT pg_advisory_xact_lock(7737423, 1)::text AS locked
