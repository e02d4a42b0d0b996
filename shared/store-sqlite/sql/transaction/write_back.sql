-- Writes the log back into the file, and empties it; both are on the disk then. 1 where somebody reads what is in it.
PRAGMA wal_checkpoint(TRUNCATE);
