-- What MySQL says differently about what deleted sessions leave: it deletes by LIMIT.

-- name: erasures/begin
-- A session is being deleted; kept when it was before.
INSERT INTO erasures (tenant, session_id, due_at, deleted_at) VALUES ($1, $2, $3, $3)
ON DUPLICATE KEY UPDATE due_at = due_at;

-- name: erasures/load
-- How far the erasure of a session has come. Locked, so that one scheduler goes on with it.
SELECT e.deleted_at, e.seq, e.send_id
FROM erasures e
JOIN session_hot h ON h.tenant = e.tenant AND h.session_id = e.session_id
WHERE e.tenant = $1 AND e.session_id = $2 AND h.lifecycle = 2
FOR UPDATE;

-- name: erasures/drop_agents
-- Removes the oldest versions of its agent, at most $3.
DELETE FROM agents WHERE tenant = $1 AND session_id = $2 ORDER BY version LIMIT $3;

-- name: erasures/drop_calls
-- Removes calls of a range of ids, at most $3.
DELETE FROM tool_calls
WHERE tenant = $4 AND call_id >= $1 AND call_id < $2
ORDER BY call_id
LIMIT $3;

-- name: erasures/drop_items
-- Removes items of its inbox, at most $3.
DELETE FROM inbox WHERE tenant = $1 AND session_id = $2 ORDER BY item_id LIMIT $3;

-- name: erasures/drop_usage
-- Removes usage of a send, at most $3.
DELETE FROM usage_rows WHERE tenant = $1 AND send_id = $2 ORDER BY round, attempt LIMIT $3;

-- name: erasures/drop_projections
-- Removes the oldest projections, at most $3.
DELETE FROM projections WHERE tenant = $1 AND session_id = $2 ORDER BY from_seq LIMIT $3;

-- name: erasures/drop_folds
-- Removes the oldest folds, at most $3.
DELETE FROM folds WHERE tenant = $1 AND session_id = $2 ORDER BY n LIMIT $3;
