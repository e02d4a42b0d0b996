-- Locks the list until the transaction ends. SQLite has a single writer anyway.
SELECT version FROM lists WHERE tenant = $1 AND list = $2;
