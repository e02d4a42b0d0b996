-- Nobody else changes the catalogue until the transaction ends: its versions are visible in their order.
SELECT pg_advisory_xact_lock(7737423, 3)::text AS locked
