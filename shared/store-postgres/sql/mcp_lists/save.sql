-- Keeps a server's list. Index: the primary key.
INSERT INTO mcp_lists AS l (server, tools, updated_at)
VALUES ($2::text, $3::text, coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint))
ON CONFLICT (server) DO UPDATE SET tools = excluded.tools, updated_at = excluded.updated_at
