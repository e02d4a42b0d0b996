-- Opens a write transaction whose commit survives a power cut, and reads the clock; $1 replaces it.
-- The level is set each time because a relaxed transaction may have come before.
PRAGMA synchronous = FULL;
BEGIN IMMEDIATE;
SELECT coalesce($1, CAST(round(unixepoch('subsec') * 1000) AS INTEGER));
