-- A list's entries in their order.
-- Index: the primary key.
SELECT e.body FROM list_entries e
WHERE e.tenant = $1::integer AND e.list = $2::text
ORDER BY e.id
