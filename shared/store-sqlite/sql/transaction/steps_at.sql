-- Steps by when they were committed, for whoever keeps a journal.
CREATE INDEX IF NOT EXISTS steps_at ON steps (at);
