-- Adds the extension, where the user may.
CREATE EXTENSION IF NOT EXISTS vector
