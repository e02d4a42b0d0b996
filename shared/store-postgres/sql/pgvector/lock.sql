-- Makes those wait that want to add the extension, too, until the transaction ends.
SELECT pg_advisory_xact_lock(7737423, 1)::text AS locked
