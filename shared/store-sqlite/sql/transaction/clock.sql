-- The database's clock; $1 replaces it.
SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER);
