-- Every entry of every list.
SELECT tenant, list, body FROM list_entries ORDER BY tenant, list, id;
