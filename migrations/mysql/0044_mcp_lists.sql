-- The tools that MCP servers last told of, by server; offered while a server is away.
--   server  its name, and a digest of where it is
--   tools   JSON
CREATE TABLE mcp_lists (
    server     VARCHAR(255) NOT NULL PRIMARY KEY,
    tools      LONGTEXT     NOT NULL,
    updated_at BIGINT       NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
