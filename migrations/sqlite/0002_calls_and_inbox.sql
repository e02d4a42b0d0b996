-- Tool calls that wait, the inbox of busy sessions, and children that report to a parent.

-- Whether the tool failed; only on a tool's message.
ALTER TABLE messages ADD COLUMN failed INTEGER NOT NULL DEFAULT 0;

-- Who created a session as a child, and where it stands in the tree: all four or none.
ALTER TABLE sessions ADD COLUMN parent_session BLOB;
ALTER TABLE sessions ADD COLUMN parent_call TEXT CHECK ((parent_call IS NULL) = (parent_session IS NULL));
ALTER TABLE sessions ADD COLUMN root_session BLOB CHECK ((root_session IS NULL) = (parent_session IS NULL));
ALTER TABLE sessions ADD COLUMN depth INTEGER CHECK ((depth IS NULL) = (parent_session IS NULL));
CREATE INDEX sessions_children ON sessions (tenant, parent_session, session_id) WHERE parent_session IS NOT NULL;

-- reports_to: the parent's call that the end of this send settles. reported_at: when it did.
ALTER TABLE sends ADD COLUMN reports_to TEXT;
ALTER TABLE sends ADD COLUMN reported_at INTEGER;
CREATE INDEX sends_unreported ON sends (finished_at, send_id)
WHERE finished_at IS NOT NULL AND reports_to IS NOT NULL AND reported_at IS NULL;

-- One row per tool call, from the transaction that stored the request. Made anew, because the key is
-- another one: an id, unique in the tenant. The ids of a round's calls begin alike, so a round is a
-- range of the key; SQLite compares them byte by byte.
--   waits_on       whom it waits for; null while it is the worker's to run, and once it is settled
--   started_epoch  the grant under which a worker last began it; attempt counts the beginnings
--   deadline_at    when whoever it waits for is too late
--   result         what the model is told, and what is kept beside it
CREATE TABLE tool_calls_new (
    tenant        INTEGER NOT NULL,
    call_id       TEXT    NOT NULL,
    session_id    BLOB    NOT NULL,
    send_id       BLOB    NOT NULL,
    round         INTEGER NOT NULL,
    place         INTEGER NOT NULL,
    name          TEXT    NOT NULL,
    arguments     TEXT    NOT NULL,
    repeat        TEXT    NOT NULL CHECK (repeat IN ('safe', 'keyed', 'once')),
    waits_on      TEXT,
    approval      TEXT    NOT NULL CHECK (approval IN ('none', 'asked', 'given')),
    started_epoch INTEGER,
    attempt       INTEGER NOT NULL DEFAULT 0,
    deadline_at   INTEGER,
    result        TEXT,
    requested_at  INTEGER NOT NULL,
    settled_at    INTEGER,
    PRIMARY KEY (tenant, call_id),
    CHECK ((settled_at IS NULL) = (result IS NULL)),
    CHECK (settled_at IS NULL OR waits_on IS NULL),
    CHECK ((started_epoch IS NULL) = (attempt = 0))
) STRICT;
-- Until now every call was settled with its request, and a result was a code and a message.
INSERT INTO tool_calls_new (tenant, call_id, session_id, send_id, round, place, name, arguments, repeat,
                            approval, result, requested_at, settled_at)
SELECT c.tenant, c.call_id, c.session_id, c.send_id, c.round, c.place, c.name, c.arguments, 'keyed',
       'none',
       CASE
           WHEN c.result IS NULL THEN NULL
           WHEN c.failed THEN json_object(
               'content', json_array(json_object('type', 'text', 'text', coalesce(c.result ->> 'message', c.result))),
               'failed', json('true'), 'code', coalesce(c.result ->> 'code', 'tool.failed'))
           ELSE json_object(
               'content', json_array(json_object('type', 'text', 'text', coalesce(c.result ->> 'message', c.result))))
       END,
       coalesce(c.settled_at, s.created_at, 0), CASE WHEN c.result IS NOT NULL THEN c.settled_at END
FROM tool_calls c
LEFT JOIN sends s ON s.tenant = c.tenant AND s.send_id = c.send_id;
DROP TABLE tool_calls;
ALTER TABLE tool_calls_new RENAME TO tool_calls;

-- What reaches a session while a send of it is under way, in the order of n.
--   send_id  the send that it was accepted into, or that it was delivered to
--   seq      the message that it became; null on one that joined the input of a queued send
CREATE TABLE inbox (
    tenant     INTEGER NOT NULL,
    session_id BLOB    NOT NULL,
    item_id    TEXT    NOT NULL,
    n          INTEGER NOT NULL,
    kind       TEXT    NOT NULL,
    mode       TEXT    NOT NULL,
    send_id    BLOB,
    content    TEXT    NOT NULL,
    fate       TEXT    NOT NULL CHECK (fate IN ('pending', 'delivered', 'void')),
    seq        INTEGER,
    created_at INTEGER NOT NULL,
    settled_at INTEGER,
    PRIMARY KEY (tenant, session_id, item_id),
    CHECK ((settled_at IS NULL) = (fate = 'pending')),
    CHECK (seq IS NULL OR fate = 'delivered')
) STRICT;
CREATE INDEX inbox_pending ON inbox (tenant, session_id, n) WHERE fate = 'pending';
