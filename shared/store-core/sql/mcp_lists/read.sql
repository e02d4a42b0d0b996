-- A server's last list. Index: the primary key.
SELECT tools FROM mcp_lists WHERE server = $1;
