-- The server's version and clock, whether it takes writes, and how many connections it allows this user here; -1 is no
-- limit.
SELECT
    current_setting('server_version') AS version,
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now,
    current_setting('transaction_read_only') = 'on' AS read_only,
    (
        SELECT min(l.allowed)::bigint
        FROM (
            SELECT current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint
            UNION ALL
            SELECT d.datconnlimit FROM pg_database d WHERE d.datname = current_database() AND d.datconnlimit >= 0
            UNION ALL
            SELECT r.rolconnlimit FROM pg_roles r WHERE r.rolname = session_user AND r.rolconnlimit >= 0
        ) l (allowed)
    ) AS allowed
