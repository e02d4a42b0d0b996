-- Timers, and what became of each of their occurrences.

-- One row per timer. Its rule and its target are JSON that no statement looks into.
--   session_id  the session that it sends to; null on one that starts runs
--   next_n      the number of its next occurrence
--   due_at      when that one is due by the schedule; null once there is none
--   fire_at     when it is to be fired: put off by jitter, or by a delivery that failed. Set exactly
--               while the timer is armed
--   last_send   the send of the last occurrence that had one
CREATE TABLE timers (
    tenant        INT         NOT NULL,
    timer_id      BINARY(16)  NOT NULL,
    session_id    BINARY(16),
    target        LONGTEXT    NOT NULL,
    rule          LONGTEXT    NOT NULL,
    status        VARCHAR(16) NOT NULL CHECK (status IN ('armed', 'paused', 'done', 'cancelled', 'dead')),
    next_n        BIGINT      NOT NULL,
    due_at        BIGINT,
    fire_at       BIGINT,
    failures      INT         NOT NULL DEFAULT 0,
    failure       LONGTEXT,
    last_send     BINARY(16),
    last_fired_at BIGINT,
    ended_at      BIGINT,
    created_at    BIGINT      NOT NULL,
    updated_at    BIGINT      NOT NULL,
    PRIMARY KEY (tenant, timer_id),
    KEY timers_due (fire_at, tenant, timer_id),
    KEY timers_session (tenant, session_id, timer_id),
    KEY timers_ended (ended_at),
    CHECK ((fire_at IS NOT NULL) = (status = 'armed')),
    CHECK ((due_at IS NULL) = (status IN ('done', 'cancelled', 'dead'))),
    CHECK ((ended_at IS NULL) = (due_at IS NOT NULL))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- One row per occurrence that has its fate: its key is what lets it have only one.
CREATE TABLE timer_occurrences (
    tenant   INT         NOT NULL,
    timer_id BINARY(16)  NOT NULL,
    n        BIGINT      NOT NULL,
    due_at   BIGINT      NOT NULL,
    fate     VARCHAR(16) NOT NULL CHECK (fate IN ('fired', 'merged', 'skipped', 'failed')),
    send_id  BINARY(16),
    fired_at BIGINT      NOT NULL,
    PRIMARY KEY (tenant, timer_id, n),
    KEY timer_occurrences_age (fired_at),
    CHECK (fired_at >= due_at),
    CHECK ((send_id IS NOT NULL) = (fate IN ('fired', 'merged')))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
