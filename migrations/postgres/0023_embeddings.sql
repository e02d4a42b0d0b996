-- embed_at: when a vector of the entry is to be made; null when it has one. Entries of before are due at
-- once, and so are those that processes of the previous release enter.
ALTER TABLE memories ADD COLUMN embed_at BIGINT DEFAULT 0;
CREATE INDEX memories_unembedded ON memories (embed_at) WHERE embed_at IS NOT NULL;
