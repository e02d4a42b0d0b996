-- A list's counters; no row if nothing was written to it.
-- Index: the primary key.
SELECT l.next_id, l.version FROM lists l WHERE l.tenant = $1::integer AND l.list = $2::text
