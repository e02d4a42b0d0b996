-- Timers, and what became of each of their occurrences.

-- One row per timer. Its rule and its target are JSON that no statement looks into.
--   session_id  the session that it sends to; null on one that starts runs
--   next_n      the number of its next occurrence
--   due_at      when that one is due by the schedule; null once there is none
--   fire_at     when it is to be fired: put off by jitter, or by a delivery that failed. Set exactly
--               while the timer is armed
--   last_send   the send of the last occurrence that had one
CREATE TABLE timers (
    tenant        INTEGER NOT NULL,
    timer_id      BLOB    NOT NULL,
    session_id    BLOB,
    target        TEXT    NOT NULL,
    rule          TEXT    NOT NULL,
    status        TEXT    NOT NULL CHECK (status IN ('armed', 'paused', 'done', 'cancelled', 'dead')),
    next_n        INTEGER NOT NULL,
    due_at        INTEGER,
    fire_at       INTEGER,
    failures      INTEGER NOT NULL DEFAULT 0,
    failure       TEXT,
    last_send     BLOB,
    last_fired_at INTEGER,
    ended_at      INTEGER,
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    PRIMARY KEY (tenant, timer_id),
    CHECK ((fire_at IS NOT NULL) = (status = 'armed')),
    CHECK ((due_at IS NULL) = (status IN ('done', 'cancelled', 'dead'))),
    CHECK ((ended_at IS NULL) = (due_at IS NOT NULL))
) STRICT;
CREATE INDEX timers_due ON timers (fire_at, tenant, timer_id) WHERE fire_at IS NOT NULL;
CREATE INDEX timers_session ON timers (tenant, session_id, timer_id) WHERE session_id IS NOT NULL;
CREATE INDEX timers_ended ON timers (ended_at) WHERE ended_at IS NOT NULL;

-- One row per occurrence that has its fate: its key is what lets it have only one.
CREATE TABLE timer_occurrences (
    tenant   INTEGER NOT NULL,
    timer_id BLOB    NOT NULL,
    n        INTEGER NOT NULL,
    due_at   INTEGER NOT NULL,
    fate     TEXT    NOT NULL CHECK (fate IN ('fired', 'merged', 'skipped', 'failed')),
    send_id  BLOB,
    fired_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, timer_id, n),
    CHECK (fired_at >= due_at),
    CHECK ((send_id IS NOT NULL) = (fate IN ('fired', 'merged')))
) STRICT, WITHOUT ROWID;
CREATE INDEX timer_occurrences_age ON timer_occurrences (fired_at);
