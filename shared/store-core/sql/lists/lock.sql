-- Nobody else changes the list until the transaction ends. SQLite has one writer anyway.
SELECT version FROM lists WHERE tenant = $1 AND list = $2;
