-- For whoever keeps a journal: steps by when they were committed.
CREATE INDEX steps_at ON steps (at);
