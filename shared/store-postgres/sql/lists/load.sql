-- A list's counters; none where nothing was written to it.
-- Index: the primary key.
SELECT l.next_id, l.version FROM lists l WHERE l.tenant = $1::integer AND l.list = $2::text
