-- The database's clock; $1 replaces it.
SELECT coalesce($1, CAST(round(unixepoch('subsec') * 1000) AS INTEGER));
