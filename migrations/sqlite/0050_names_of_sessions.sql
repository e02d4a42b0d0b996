-- Names that callers gave to their sessions, by which they find or create them. A name is free again once its session
-- is deleted.
CREATE TABLE session_names (
    tenant     INTEGER NOT NULL,
    name       TEXT    NOT NULL,
    session_id BLOB    NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID;
CREATE UNIQUE INDEX session_names_session ON session_names (tenant, session_id);
