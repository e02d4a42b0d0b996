-- What agents may name of a worker, as JSON: its tools with a line about each, and its MCP servers.
-- MySQL gives no default to long text: who registers writes it.
ALTER TABLE boots ADD COLUMN tools LONGTEXT;
