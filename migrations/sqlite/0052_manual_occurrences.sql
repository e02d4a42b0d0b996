-- Whether someone asked for an occurrence before it was due.
ALTER TABLE timer_occurrences ADD COLUMN manual INTEGER NOT NULL DEFAULT 0;
