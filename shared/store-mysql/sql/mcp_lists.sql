-- MySQL's own statements for lists of MCP servers.

-- name: mcp_lists/save
-- Keeps a server's list. Index: the primary key.
INSERT INTO mcp_lists (server, tools, updated_at)
VALUES ($1, $2, $3)
ON DUPLICATE KEY UPDATE tools = VALUES(tools), updated_at = VALUES(updated_at);
