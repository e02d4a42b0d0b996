-- Every list.
SELECT tenant, list, next_id, version FROM lists ORDER BY tenant, list;
