-- What is paused: a tenant, or one of its agents or tools; providers and pools under the default tenant.
--   resumed_at  since when it is not any more; kept until the sends that waited for it are woken
CREATE TABLE pauses (
    tenant     INTEGER NOT NULL,
    kind       TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    reason     TEXT,
    created_at INTEGER NOT NULL,
    resumed_at INTEGER,
    PRIMARY KEY (tenant, kind, name)
) STRICT;
-- Sends that were parked because of a pause, or are about to be.
CREATE TABLE pause_waits (
    tenant       INTEGER NOT NULL,
    send_id      BLOB    NOT NULL,
    pause_tenant INTEGER NOT NULL,
    kind         TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    PRIMARY KEY (tenant, send_id)
) STRICT;
CREATE INDEX pause_waits_pause ON pause_waits (pause_tenant, kind, name);
-- The sends that requests of a tenant with a limit of open sends made, or are about to make. What ended is
-- removed when there seems to be no place left.
CREATE TABLE open_sends (
    tenant      INTEGER NOT NULL,
    send_id     BLOB    NOT NULL,
    reserved_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, send_id)
) STRICT;
