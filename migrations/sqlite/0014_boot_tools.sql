-- What agents may name of a worker, as JSON: its tools with a line about each, and its MCP servers.
ALTER TABLE boots ADD COLUMN tools TEXT NOT NULL DEFAULT '{}';
