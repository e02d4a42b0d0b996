-- The tools that MCP servers last told of, by server; offered while a server is away.
--   server  its name, and a digest of where it is
--   tools   JSON
CREATE TABLE mcp_lists (
    server     TEXT   NOT NULL PRIMARY KEY,
    tools      TEXT   NOT NULL,
    updated_at BIGINT NOT NULL
);
