-- A number above the ids of all earlier transactions, and the smallest id of a transaction of this
-- database that is in progress. A transaction that writes holds the lock on its own id, of which
-- pg_locks shows 32 bits. One that gets its id after this statement sees what was committed before
-- it.
SELECT n.next, coalesce(min(n.next - ((n.next - l.transactionid::text::bigint) & 4294967295)), n.next) AS oldest
FROM (SELECT pg_current_xact_id()::text::bigint AS next) n
LEFT JOIN (
    pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid AND a.datname = current_database()
) ON l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.pid <> pg_backend_pid()
GROUP BY n.next
