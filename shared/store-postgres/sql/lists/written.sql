-- What a call did to the list, if anything.
-- Index: the primary key.
SELECT w.entry_id, w.evicted FROM list_writes w
WHERE w.tenant = $1::integer AND w.list = $2::text AND w.call_id = $3::text
