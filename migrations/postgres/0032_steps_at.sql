-- For whoever keeps a journal: steps by when they were committed. They are there in about this order, so a summary of each
-- part of the table says enough, and costs the steps nothing. Not CONCURRENTLY: that would wait for the other processes
-- that start, and they for the lock of this migration. The table is read once meanwhile, as fast as the disk allows.
CREATE INDEX steps_at ON steps USING brin (at) WITH (autosummarize = on);
