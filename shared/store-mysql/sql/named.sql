-- What MySQL says differently about agents that have names.

-- name: named/enter
-- Makes sure of the row of an agent's name, and that nobody else changes it until the transaction ends.
INSERT INTO agents_named (tenant, name, version, created_at, updated_at) VALUES ($1, $2, 0, $3, $3)
ON DUPLICATE KEY UPDATE version = version;

-- name: named/lock
-- Nobody else changes the agent until the transaction ends.
SELECT version FROM agents_named WHERE tenant = $1 AND name = $2 FOR UPDATE;

-- name: named/point
-- Points an alias of an agent whose row is locked at a version.
INSERT INTO agent_aliases (tenant, name, alias, version) VALUES ($1, $2, $3, $4)
ON DUPLICATE KEY UPDATE version = VALUES(version);
