-- What agents remember beyond a session. namespace ends with a slash, so that a namespace and all
-- below it are one range of the primary key, and lie together.
--   words            the words of text and one word per level of namespace, between spaces: made by the
--                    program, so that every database finds the same
--   embedding        the text as a vector of four-byte numbers, made by embedding_model
CREATE TABLE memories (
    tenant          INT          NOT NULL,
    memory_id       BINARY(16)   NOT NULL,
    namespace       VARCHAR(410) NOT NULL CHECK (namespace LIKE '%/'),
    text            MEDIUMTEXT   NOT NULL,
    metadata        MEDIUMTEXT   NOT NULL,
    source          TEXT,
    words           MEDIUMTEXT   NOT NULL,
    embedding       MEDIUMBLOB,
    embedding_model VARCHAR(255),
    created_at      BIGINT       NOT NULL,
    updated_at      BIGINT       NOT NULL,
    expires_at      BIGINT,
    PRIMARY KEY (tenant, namespace, memory_id),
    UNIQUE KEY memories_id (tenant, memory_id),
    KEY memories_expires (expires_at),
    FULLTEXT KEY memories_words (words),
    CHECK ((embedding IS NULL) = (embedding_model IS NULL))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Erasures of namespaces, without what was in them: fingerprint stands for the namespace's name.
CREATE TABLE memory_erasures (
    tenant      INT          NOT NULL,
    erasure_id  BINARY(16)   NOT NULL,
    fingerprint VARCHAR(255) NOT NULL,
    deleted     BIGINT       NOT NULL,
    erased_at   BIGINT       NOT NULL,
    PRIMARY KEY (tenant, erasure_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Sends from which entries are still to be extracted.
--   spec       what to do, as JSON
--   namespace  where the entries go, with a slash behind
--   token      marks the attempt that is under way, if one is
CREATE TABLE extractions (
    tenant     INT          NOT NULL,
    send_id    BINARY(16)   NOT NULL,
    session_id BINARY(16)   NOT NULL,
    pool       VARCHAR(255) NOT NULL,
    namespace  VARCHAR(410) NOT NULL,
    spec       MEDIUMTEXT   NOT NULL,
    due_at     BIGINT       NOT NULL,
    attempts   INT          NOT NULL DEFAULT 0,
    token      BINARY(16),
    PRIMARY KEY (tenant, send_id),
    KEY extractions_due (pool, due_at),
    KEY extractions_namespace (tenant, namespace)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What a model call was for that is no round of its send; null for rounds. Such calls have rounds below
-- zero.
ALTER TABLE usage_rows ADD COLUMN purpose VARCHAR(40);
