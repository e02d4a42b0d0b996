-- A list's entries in their order.
SELECT body FROM list_entries WHERE tenant = $1 AND list = $2 ORDER BY id;
