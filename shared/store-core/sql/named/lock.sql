-- Nobody else changes the agent until the transaction ends. SQLite has one writer anyway.
SELECT version FROM agents_named WHERE tenant = $1 AND name = $2;
