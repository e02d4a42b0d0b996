-- Makes those wait that want to keep tenants apart, too, until the transaction ends.
SELECT pg_advisory_xact_lock(7737423, 2)::text AS locked
