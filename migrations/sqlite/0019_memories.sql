-- What agents remember beyond a session. namespace ends with a slash, so that a namespace and all
-- below it are one range of the index.
--   n                names the row for the full-text index
--   words            the words of text and one word per level of namespace, between spaces: made by the
--                    program, so that every database finds the same
--   embedding        the text as a vector of four-byte numbers, made by embedding_model
CREATE TABLE memories (
    n               INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant          INTEGER NOT NULL,
    memory_id       BLOB    NOT NULL,
    namespace       TEXT    NOT NULL CHECK (namespace LIKE '%/'),
    text            TEXT    NOT NULL,
    metadata        TEXT    NOT NULL,
    source          TEXT,
    words           TEXT    NOT NULL,
    embedding       BLOB,
    embedding_model TEXT,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    expires_at      INTEGER,
    UNIQUE (tenant, memory_id),
    CHECK ((embedding IS NULL) = (embedding_model IS NULL))
) STRICT;
CREATE INDEX memories_namespace ON memories (tenant, namespace, memory_id);
CREATE INDEX memories_expires ON memories (expires_at) WHERE expires_at IS NOT NULL;

CREATE VIRTUAL TABLE memory_words USING fts5 (
    words, content = 'memories', content_rowid = 'n', tokenize = 'unicode61 remove_diacritics 0'
);
CREATE TRIGGER memories_inserted AFTER INSERT ON memories BEGIN
    INSERT INTO memory_words (rowid, words) VALUES (new.n, new.words);
END;
CREATE TRIGGER memories_deleted AFTER DELETE ON memories BEGIN
    INSERT INTO memory_words (memory_words, rowid, words) VALUES ('delete', old.n, old.words);
END;
CREATE TRIGGER memories_updated AFTER UPDATE OF words ON memories BEGIN
    INSERT INTO memory_words (memory_words, rowid, words) VALUES ('delete', old.n, old.words);
    INSERT INTO memory_words (rowid, words) VALUES (new.n, new.words);
END;

-- Erasures of namespaces, without what was in them: fingerprint stands for the namespace's name.
CREATE TABLE memory_erasures (
    tenant      INTEGER NOT NULL,
    erasure_id  BLOB    NOT NULL,
    fingerprint TEXT    NOT NULL,
    deleted     INTEGER NOT NULL,
    erased_at   INTEGER NOT NULL,
    PRIMARY KEY (tenant, erasure_id)
) STRICT, WITHOUT ROWID;

-- Sends from which entries are still to be extracted.
--   spec       what to do, as JSON
--   namespace  where the entries go, with a slash behind
--   token      marks the attempt that is under way, if one is
CREATE TABLE extractions (
    tenant     INTEGER NOT NULL,
    send_id    BLOB    NOT NULL,
    session_id BLOB    NOT NULL,
    pool       TEXT    NOT NULL,
    namespace  TEXT    NOT NULL,
    spec       TEXT    NOT NULL,
    due_at     INTEGER NOT NULL,
    attempts   INTEGER NOT NULL DEFAULT 0,
    token      BLOB,
    PRIMARY KEY (tenant, send_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX extractions_due ON extractions (pool, due_at);
CREATE INDEX extractions_namespace ON extractions (tenant, namespace);

-- What a model call was for that is no round of its send; null for rounds. Such calls have rounds below
-- zero.
ALTER TABLE usage_rows ADD COLUMN purpose TEXT;
