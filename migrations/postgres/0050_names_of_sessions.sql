-- Names that callers gave to their sessions, by which they find or create them. A name is free again once its session
-- is deleted.
CREATE TABLE session_names (
    tenant     INTEGER NOT NULL,
    name       TEXT    COLLATE "C" NOT NULL,
    session_id UUID    NOT NULL,
    PRIMARY KEY (tenant, name)
);
CREATE UNIQUE INDEX session_names_session ON session_names (tenant, session_id);
