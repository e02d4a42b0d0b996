-- Makes those wait that want to fence the tables, too, until the transaction ends.
SELECT pg_advisory_xact_lock(7737423, 4)::text AS locked
