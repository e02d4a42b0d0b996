-- Webhooks: endpoints of tenants that are told of events.
--   events                   filters, as JSON
--   secret, previous_secret  sealed under the operator's key
CREATE TABLE webhooks (
    tenant          INT           NOT NULL,
    webhook_id      BINARY(16)    NOT NULL,
    url             VARCHAR(2000) NOT NULL,
    events          TEXT          NOT NULL,
    secret          VARCHAR(500)  NOT NULL,
    previous_secret VARCHAR(500),
    previous_until  BIGINT,
    disabled_at     BIGINT,
    disabled_reason TEXT,
    created_at      BIGINT        NOT NULL,
    PRIMARY KEY (tenant, webhook_id),
    CHECK ((previous_secret IS NULL) = (previous_until IS NULL)),
    CHECK ((disabled_at IS NULL) = (disabled_reason IS NULL))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
-- Events that no fan-out has turned into deliveries yet: steps of a session or a run, the source. Rows are
-- of tenants with endpoints only, and live for moments.
CREATE TABLE webhook_events (
    tenant   INT         NOT NULL,
    source   BINARY(16)  NOT NULL,
    n        BIGINT      NOT NULL,
    type     VARCHAR(50) NOT NULL,
    resource BINARY(16)  NOT NULL,
    at       BIGINT      NOT NULL,
    PRIMARY KEY (tenant, source, n),
    KEY webhook_events_at (at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
-- Events on their way to endpoints, and for a while those that arrived.
--   attempts  so far; the number of the last one is the fence of its end
--   tried     those since it was last asked for
--   due_at    set while pending: the next attempt, or the end of the lease of the one under way
-- Without partial indexes both of these have all rows.
CREATE TABLE webhook_deliveries (
    tenant     INT         NOT NULL,
    webhook_id BINARY(16)  NOT NULL,
    event_id   BINARY(16)  NOT NULL,
    type       VARCHAR(50) NOT NULL,
    resource   BINARY(16)  NOT NULL,
    event_at   BIGINT      NOT NULL,
    status     VARCHAR(20) NOT NULL CHECK (status IN ('pending', 'delivered', 'dead')),
    attempts   INT         NOT NULL DEFAULT 0,
    tried      INT         NOT NULL DEFAULT 0,
    due_at     BIGINT,
    answer     INT,
    error      TEXT,
    settled_at BIGINT,
    PRIMARY KEY (tenant, webhook_id, event_id),
    KEY webhook_deliveries_due (tenant, webhook_id, due_at),
    KEY webhook_deliveries_settled (settled_at),
    CHECK ((status = 'pending') = (due_at IS NOT NULL)),
    CHECK ((status = 'pending') = (settled_at IS NULL))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
