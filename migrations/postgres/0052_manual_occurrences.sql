-- Whether someone asked for an occurrence before it was due.
ALTER TABLE timer_occurrences ADD COLUMN manual BOOLEAN NOT NULL DEFAULT FALSE;
