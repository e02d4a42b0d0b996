-- Which releases work on this schema. One row; each migration that takes something away sets it to its own version.
--   oldest  the version of the schema that the oldest of them brings
CREATE TABLE schema_compatibility (
    oldest BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

INSERT INTO schema_compatibility (oldest) VALUES (36);
