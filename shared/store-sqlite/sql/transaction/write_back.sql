-- Writes the log back into the file and empties it; both are then on disk. The first column is 1 if
-- a reader still needs the log.
PRAGMA wal_checkpoint(TRUNCATE);
