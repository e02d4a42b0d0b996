-- Opens a write transaction that survives this process but perhaps not a power cut, and reads the
-- clock; $1 replaces it. The next durable commit makes it durable too.
PRAGMA synchronous = NORMAL;
BEGIN IMMEDIATE;
SELECT coalesce($1, CAST(round(unixepoch('subsec') * 1000) AS INTEGER));
