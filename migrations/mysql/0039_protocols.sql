-- What processes of different releases say to each other: a boot notes the version of it that its program speaks, 0 where
-- the program is of a release that noted none, and the schema says which one it has to speak at least.
ALTER TABLE boots ADD COLUMN protocol INTEGER NOT NULL DEFAULT 0;
ALTER TABLE schema_compatibility ADD COLUMN protocol INTEGER NOT NULL DEFAULT 0;
