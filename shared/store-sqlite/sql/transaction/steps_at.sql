-- Creates an index of steps by commit time, for those who keep a journal.
CREATE INDEX IF NOT EXISTS steps_at ON steps (at);
