-- Which releases work on this schema. One row; each migration that takes something away sets it to its own version.
--   oldest  the version of the schema that the oldest of them brings
CREATE TABLE schema_compatibility (
    oldest INTEGER NOT NULL
) STRICT;

INSERT INTO schema_compatibility (oldest) VALUES (36);
