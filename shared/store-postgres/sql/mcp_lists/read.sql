-- A server's last list. Index: the primary key.
SELECT l.tools FROM mcp_lists l WHERE l.server = $1::text
