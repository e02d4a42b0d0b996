-- Webhooks: endpoints of tenants that are told of events.
--   events                   filters, as JSON
--   secret, previous_secret  sealed under the operator's key
CREATE TABLE webhooks (
    tenant          INTEGER NOT NULL,
    webhook_id      UUID    NOT NULL,
    url             TEXT    NOT NULL,
    events          TEXT    NOT NULL,
    secret          TEXT    NOT NULL,
    previous_secret TEXT,
    previous_until  BIGINT,
    disabled_at     BIGINT,
    disabled_reason TEXT,
    created_at      BIGINT  NOT NULL,
    PRIMARY KEY (tenant, webhook_id),
    CHECK ((previous_secret IS NULL) = (previous_until IS NULL)),
    CHECK ((disabled_at IS NULL) = (disabled_reason IS NULL))
);
-- Events that no fan-out has turned into deliveries yet: steps of a session or a run, the source. Rows are
-- of tenants with endpoints only, and live for moments.
CREATE TABLE webhook_events (
    tenant   INTEGER NOT NULL,
    source   UUID    NOT NULL,
    n        BIGINT  NOT NULL,
    type     TEXT    NOT NULL,
    resource UUID    NOT NULL,
    at       BIGINT  NOT NULL,
    PRIMARY KEY (tenant, source, n)
);
CREATE INDEX webhook_events_at ON webhook_events (at);
-- Events on their way to endpoints, and for a while those that arrived.
--   attempts  so far; the number of the last one is the fence of its end
--   tried     those since it was last asked for
--   due_at    set while pending: the next attempt, or the end of the lease of the one under way
CREATE TABLE webhook_deliveries (
    tenant     INTEGER NOT NULL,
    webhook_id UUID    NOT NULL,
    event_id   UUID    NOT NULL,
    type       TEXT    NOT NULL,
    resource   UUID    NOT NULL,
    event_at   BIGINT  NOT NULL,
    status     TEXT    NOT NULL CHECK (status IN ('pending', 'delivered', 'dead')),
    attempts   INTEGER NOT NULL DEFAULT 0,
    tried      INTEGER NOT NULL DEFAULT 0,
    due_at     BIGINT,
    answer     INTEGER,
    error      TEXT,
    settled_at BIGINT,
    PRIMARY KEY (tenant, webhook_id, event_id),
    CHECK ((status = 'pending') = (due_at IS NOT NULL)),
    CHECK ((status = 'pending') = (settled_at IS NULL))
);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (tenant, webhook_id, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX webhook_deliveries_settled ON webhook_deliveries (settled_at) WHERE settled_at IS NOT NULL;
