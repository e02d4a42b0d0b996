-- Keeps a server's list. Index: the primary key.
INSERT INTO mcp_lists (server, tools, updated_at)
VALUES ($1, $2, $3)
ON CONFLICT (server) DO UPDATE SET tools = excluded.tools, updated_at = excluded.updated_at;
