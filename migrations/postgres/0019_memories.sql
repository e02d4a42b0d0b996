-- What agents remember beyond a session. namespace ends with a slash, so that a namespace and all
-- below it are one range of the index.
--   words            the words of text and one word per level of namespace, between spaces: made by the
--                    program, so that every database finds the same
--   terms            the same for the full-text index
--   embedding        the text as a vector of four-byte numbers, made by embedding_model
CREATE TABLE memories (
    tenant          INTEGER NOT NULL,
    memory_id       UUID    NOT NULL,
    namespace       TEXT    COLLATE "C" NOT NULL CHECK (namespace LIKE '%/'),
    text            TEXT    NOT NULL,
    metadata        TEXT    NOT NULL,
    source          TEXT,
    words           TEXT    NOT NULL,
    terms           TSVECTOR NOT NULL
                    GENERATED ALWAYS AS (array_to_tsvector(string_to_array(words, ' '))) STORED,
    embedding       BYTEA,
    embedding_model TEXT,
    created_at      BIGINT  NOT NULL,
    updated_at      BIGINT  NOT NULL,
    expires_at      BIGINT,
    PRIMARY KEY (tenant, memory_id),
    CHECK ((embedding IS NULL) = (embedding_model IS NULL))
);
CREATE INDEX memories_namespace ON memories (tenant, namespace, memory_id);
CREATE INDEX memories_terms ON memories USING gin (terms);
CREATE INDEX memories_expires ON memories (expires_at) WHERE expires_at IS NOT NULL;

-- Erasures of namespaces, without what was in them: fingerprint stands for the namespace's name.
CREATE TABLE memory_erasures (
    tenant      INTEGER NOT NULL,
    erasure_id  UUID    NOT NULL,
    fingerprint TEXT    COLLATE "C" NOT NULL,
    deleted     BIGINT  NOT NULL,
    erased_at   BIGINT  NOT NULL,
    PRIMARY KEY (tenant, erasure_id)
);

-- Sends from which entries are still to be extracted.
--   spec       what to do, as JSON
--   namespace  where the entries go, with a slash behind
--   token      marks the attempt that is under way, if one is
CREATE TABLE extractions (
    tenant     INTEGER NOT NULL,
    send_id    UUID    NOT NULL,
    session_id UUID    NOT NULL,
    pool       TEXT    COLLATE "C" NOT NULL,
    namespace  TEXT    COLLATE "C" NOT NULL,
    spec       TEXT    NOT NULL,
    due_at     BIGINT  NOT NULL,
    attempts   INTEGER NOT NULL DEFAULT 0,
    token      UUID,
    PRIMARY KEY (tenant, send_id)
);
CREATE INDEX extractions_due ON extractions (pool, due_at);
CREATE INDEX extractions_namespace ON extractions (tenant, namespace);

-- What a model call was for that is no round of its send; null for rounds. Such calls have rounds below
-- zero.
ALTER TABLE usage_rows ADD COLUMN purpose TEXT;
