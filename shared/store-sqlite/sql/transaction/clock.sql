-- The database's clock.
SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER);
