-- Adds the column of vectors that the extension compares. Vectors of different models have different
-- sizes, so that it names none.
ALTER TABLE memories ADD COLUMN IF NOT EXISTS embedding_vector vector
