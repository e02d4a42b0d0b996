-- Steps of a session that went with sends that nobody needs any more: the others keep their numbers.
CREATE TABLE retired_steps (
    tenant     INTEGER NOT NULL,
    session_id BLOB    NOT NULL,
    steps      INTEGER NOT NULL CHECK (steps > 0),
    PRIMARY KEY (tenant, session_id)
) STRICT, WITHOUT ROWID;
