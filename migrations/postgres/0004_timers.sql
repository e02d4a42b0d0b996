-- Timers, and what became of each of their occurrences.

-- One row per timer. Its rule and its target are JSON that no statement looks into.
--   session_id  the session that it sends to; null on one that starts runs
--   next_n      the number of its next occurrence
--   due_at      when that one is due by the schedule; null once there is none
--   fire_at     when it is to be fired: put off by jitter, or by a delivery that failed. Set exactly
--               while the timer is armed, so that the index of what is due holds nothing else
--   last_send   the send of the last occurrence that had one
CREATE TABLE timers (
    tenant        INTEGER NOT NULL,
    timer_id      UUID    NOT NULL,
    session_id    UUID,
    target        TEXT    NOT NULL,
    rule          TEXT    NOT NULL,
    status        TEXT    NOT NULL
                  CHECK (status IN ('armed', 'paused', 'done', 'cancelled', 'dead')),
    next_n        BIGINT  NOT NULL,
    due_at        BIGINT,
    fire_at       BIGINT,
    failures      INTEGER NOT NULL DEFAULT 0,
    failure       TEXT,
    last_send     UUID,
    last_fired_at BIGINT,
    ended_at      BIGINT,
    created_at    BIGINT  NOT NULL,
    updated_at    BIGINT  NOT NULL,
    PRIMARY KEY (tenant, timer_id),
    CHECK ((fire_at IS NOT NULL) = (status = 'armed')),
    CHECK ((due_at IS NULL) = (status IN ('done', 'cancelled', 'dead'))),
    CHECK ((ended_at IS NULL) = (due_at IS NOT NULL))
) WITH (fillfactor = 80);
CREATE INDEX timers_due ON timers (fire_at, tenant, timer_id) WHERE fire_at IS NOT NULL;
CREATE INDEX timers_session ON timers (tenant, session_id, timer_id) WHERE session_id IS NOT NULL;
CREATE INDEX timers_ended ON timers (ended_at) WHERE ended_at IS NOT NULL;

-- One row per occurrence that has its fate: its key is what lets it have only one.
CREATE TABLE timer_occurrences (
    tenant   INTEGER NOT NULL,
    timer_id UUID    NOT NULL,
    n        BIGINT  NOT NULL,
    due_at   BIGINT  NOT NULL,
    fate     TEXT    NOT NULL CHECK (fate IN ('fired', 'merged', 'skipped', 'failed')),
    send_id  UUID,
    fired_at BIGINT  NOT NULL,
    PRIMARY KEY (tenant, timer_id, n),
    CHECK (fired_at >= due_at),
    CHECK ((send_id IS NOT NULL) = (fate IN ('fired', 'merged')))
);
-- For retention. Rows are written in the order of their times, so ranges of pages say enough.
CREATE INDEX timer_occurrences_age ON timer_occurrences USING brin (fired_at);
