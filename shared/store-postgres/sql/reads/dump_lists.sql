-- Every list with its entries and the calls that it remembers. Index: none, a dump reads all.
SELECT l.tenant, l.list, l.next_id, l.version,
       coalesce((SELECT array_agg(e.body ORDER BY e.id) FROM list_entries e
                 WHERE e.tenant = l.tenant AND e.list = l.list), '{}') AS bodies,
       coalesce((SELECT array_agg(w.call_id ORDER BY w.call_id) FROM list_writes w
                 WHERE w.tenant = l.tenant AND w.list = l.list), '{}') AS calls
FROM lists l
ORDER BY l.tenant, l.list
