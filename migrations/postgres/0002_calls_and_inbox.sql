-- The lives of tool calls, what reaches a session that is busy, and whose child a session is.

-- The tool failed; only on a tool's message.
ALTER TABLE messages ADD COLUMN failed BOOLEAN NOT NULL DEFAULT FALSE;

-- One row per tool call, from the transaction that stored the request. Anew, because its key is
-- another one: an id, unique in the tenant, is all that a result from outside brings along. It
-- begins with the send and the round, so that the calls of a round are neighbours in the key, whose
-- collation compares bytes; nothing else is looked for.
--   result         what the model is told, as JSON; set exactly when settled_at is
--   waits_on       whom it waits for; null while it is a worker's to run, and once it is settled
--   started_epoch  the grant under which a worker last began it: after a crash it may have happened
ALTER TABLE tool_calls RENAME TO tool_calls_before;
ALTER INDEX tool_calls_pkey RENAME TO tool_calls_before_pkey;
CREATE TABLE tool_calls (
    tenant        INTEGER NOT NULL,
    call_id       TEXT    COLLATE "C" NOT NULL,
    session_id    UUID    NOT NULL,
    send_id       UUID    NOT NULL,
    round         INTEGER NOT NULL,
    place         INTEGER NOT NULL,
    name          TEXT    NOT NULL,
    arguments     TEXT    NOT NULL,
    repeat        TEXT    NOT NULL CHECK (repeat IN ('safe', 'keyed', 'once')),
    waits_on      TEXT,
    approval      TEXT    NOT NULL CHECK (approval IN ('none', 'asked', 'given')),
    started_epoch BIGINT,
    attempt       INTEGER NOT NULL DEFAULT 0,
    deadline_at   BIGINT,
    result        TEXT,
    requested_at  BIGINT  NOT NULL,
    settled_at    BIGINT,
    PRIMARY KEY (tenant, call_id),
    CHECK ((settled_at IS NOT NULL) = (result IS NOT NULL)),
    CHECK (waits_on IS NULL OR settled_at IS NULL)
    -- Room for a result beside the request, so that settling stays heap-only.
) WITH (fillfactor = 70);
INSERT INTO tool_calls (
    tenant, call_id, session_id, send_id, round, place, name, arguments, repeat, approval, result,
    requested_at, settled_at
)
SELECT
    b.tenant, b.call_id, b.session_id, b.send_id, b.round, b.place, b.name, b.arguments, 'keyed',
    'none',
    -- Until now every call was settled with its request; a failed one had a code and a message.
    CASE
        WHEN b.result IS NULL THEN NULL
        WHEN b.failed THEN json_build_object(
            'content', json_build_array(json_build_object(
                'type', 'text', 'text', coalesce(b.result::json ->> 'message', b.result)
            )),
            'failed', TRUE, 'code', coalesce(b.result::json ->> 'code', 'tool.failed')
        )::text
        ELSE json_build_object(
            'content', json_build_array(json_build_object(
                'type', 'text', 'text', coalesce(b.result::json ->> 'message', b.result)
            ))
        )::text
    END,
    coalesce(b.settled_at, s.created_at, 0),
    CASE WHEN b.result IS NOT NULL THEN coalesce(b.settled_at, s.created_at, 0) END
FROM tool_calls_before b
LEFT JOIN sends s ON s.tenant = b.tenant AND s.send_id = b.send_id;
DROP TABLE tool_calls_before;

-- What reached a session while a send of it was under way. An item has one fate for ever, and its
-- id is never used twice.
--   n    its place, drawn from the hot row's next_position
--   seq  the message that it became; null on one that joined the input of a queued send
CREATE TABLE inbox (
    tenant     INTEGER NOT NULL,
    session_id UUID    NOT NULL,
    item_id    TEXT    COLLATE "C" NOT NULL,
    n          BIGINT  NOT NULL,
    kind       TEXT    NOT NULL CHECK (kind IN ('message', 'child', 'late_result')),
    mode       TEXT    NOT NULL,
    send_id    UUID,
    content    TEXT    NOT NULL,
    fate       TEXT    NOT NULL CHECK (fate IN ('pending', 'delivered', 'void')),
    seq        BIGINT,
    created_at BIGINT  NOT NULL,
    settled_at BIGINT,
    PRIMARY KEY (tenant, session_id, item_id),
    CHECK ((settled_at IS NULL) = (fate = 'pending')),
    CHECK (seq IS NULL OR fate = 'delivered')
);
CREATE INDEX inbox_pending ON inbox (tenant, session_id, n) WHERE fate = 'pending';

-- All null on a root.
--   parent_call  the parent's call that created the session
--   depth        steps below the root, from 1
ALTER TABLE sessions
    ADD COLUMN parent_session UUID,
    ADD COLUMN parent_call    TEXT,
    ADD COLUMN root_session   UUID,
    ADD COLUMN depth          INTEGER;
CREATE INDEX sessions_children ON sessions (tenant, parent_session) WHERE parent_session IS NOT NULL;

--   reports_to   the parent's call that the end of the send settles
--   reported_at  when it was settled so
ALTER TABLE sends
    ADD COLUMN reports_to  TEXT COLLATE "C",
    ADD COLUMN reported_at BIGINT;
-- Its conditions are those of sends that just ended: their columns are in other indexes, too, or
-- change once, so that nothing else stops being heap-only.
CREATE INDEX sends_unreported ON sends (finished_at, send_id)
    WHERE finished_at IS NOT NULL AND reports_to IS NOT NULL AND reported_at IS NULL;
