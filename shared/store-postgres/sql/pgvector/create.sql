-- Adds the extension, if the user may.
CREATE EXTENSION IF NOT EXISTS vector
