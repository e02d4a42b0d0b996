-- Tool calls that wait, the inbox of busy sessions, and children that report to a parent.

-- Whether the tool failed; only on a tool's message.
ALTER TABLE messages ADD COLUMN failed TINYINT NOT NULL DEFAULT 0;

-- Who created a session as a child, and where it stands in the tree: all four or none.
ALTER TABLE sessions
    ADD COLUMN parent_session BINARY(16),
    ADD COLUMN parent_call VARCHAR(255),
    ADD COLUMN root_session BINARY(16),
    ADD COLUMN depth INT,
    ADD CHECK ((parent_call IS NULL) = (parent_session IS NULL)),
    ADD CHECK ((root_session IS NULL) = (parent_session IS NULL)),
    ADD CHECK ((depth IS NULL) = (parent_session IS NULL)),
    ADD KEY sessions_children (tenant, parent_session, session_id);

-- reports_to: the parent's call that the end of this send settles. reported_at: when it did.
-- unreported_at: when it ended, as long as it did not.
ALTER TABLE sends
    ADD COLUMN reports_to VARCHAR(255),
    ADD COLUMN reported_at BIGINT,
    ADD COLUMN unreported_at BIGINT AS (
        CASE WHEN reports_to IS NOT NULL AND reported_at IS NULL THEN finished_at END
    ) VIRTUAL,
    ADD KEY sends_unreported (unreported_at, send_id);

-- One row per tool call, from the transaction that stored the request. The ids of a round's calls
-- begin alike, so a round is a range of the key.
--   waits_on       whom it waits for; null while it is the worker's to run, and once it is settled
--   started_epoch  the grant under which a worker last began it; attempt counts the beginnings
--   deadline_at    when whoever it waits for is too late
--   result         what the model is told, and what is kept beside it
CREATE TABLE tool_calls (
    tenant        INT          NOT NULL,
    call_id       VARCHAR(255) NOT NULL,
    session_id    BINARY(16)   NOT NULL,
    send_id       BINARY(16)   NOT NULL,
    round         INT          NOT NULL,
    place         INT          NOT NULL,
    name          VARCHAR(255) NOT NULL,
    arguments     LONGTEXT     NOT NULL,
    `repeat`      VARCHAR(16)  NOT NULL CHECK (`repeat` IN ('safe', 'keyed', 'once')),
    waits_on      VARCHAR(32),
    approval      VARCHAR(16)  NOT NULL CHECK (approval IN ('none', 'asked', 'given')),
    started_epoch BIGINT,
    attempt       INT          NOT NULL DEFAULT 0,
    deadline_at   BIGINT,
    result        LONGTEXT,
    requested_at  BIGINT       NOT NULL,
    settled_at    BIGINT,
    PRIMARY KEY (tenant, call_id),
    CHECK ((settled_at IS NULL) = (result IS NULL)),
    CHECK (settled_at IS NULL OR waits_on IS NULL),
    CHECK ((started_epoch IS NULL) = (attempt = 0))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What reaches a session while a send of it is under way, in the order of n.
--   send_id  the send that it was accepted into, or that it was delivered to
--   seq      the message that it became; null on one that joined the input of a queued send
CREATE TABLE inbox (
    tenant     INT          NOT NULL,
    session_id BINARY(16)   NOT NULL,
    item_id    VARCHAR(255) NOT NULL,
    n          BIGINT       NOT NULL,
    kind       VARCHAR(32)  NOT NULL,
    mode       VARCHAR(32)  NOT NULL,
    send_id    BINARY(16),
    content    LONGTEXT     NOT NULL,
    fate       VARCHAR(16)  NOT NULL CHECK (fate IN ('pending', 'delivered', 'void')),
    seq        BIGINT,
    created_at BIGINT       NOT NULL,
    settled_at BIGINT,
    PRIMARY KEY (tenant, session_id, item_id),
    KEY inbox_pending (tenant, session_id, fate, n),
    CHECK ((settled_at IS NULL) = (fate = 'pending')),
    CHECK (seq IS NULL OR fate = 'delivered')
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
