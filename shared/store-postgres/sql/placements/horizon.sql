-- A number that every transaction of before is below that has one, and the smallest one that a transaction of this database has
-- which is under way. Whoever writes holds the lock of its own number, of which 32 bits are told. One that gets its number
-- behind this statement sees what was committed before.
SELECT n.next, coalesce(min(n.next - ((n.next - l.transactionid::text::bigint) & 4294967295)), n.next) AS oldest
FROM (SELECT pg_current_xact_id()::text::bigint AS next) n
LEFT JOIN (
    pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid AND a.datname = current_database()
) ON l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.pid <> pg_backend_pid()
GROUP BY n.next
