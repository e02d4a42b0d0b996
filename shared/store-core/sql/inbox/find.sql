-- An inbox item, by id.
SELECT tenant, session_id, {item}
FROM inbox
WHERE tenant = $1 AND session_id = $2 AND item_id = $3;
