-- Adds the column of vectors that the extension can compare. It has no fixed size, as vectors of
-- different models have different sizes.
ALTER TABLE memories ADD COLUMN IF NOT EXISTS embedding_vector vector
