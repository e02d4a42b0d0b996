-- Begins a write transaction, and reads the clock; $1 overrides it.
BEGIN IMMEDIATE;
SELECT coalesce($1, CAST(round(unixepoch('subsec') * 1000) AS INTEGER));
