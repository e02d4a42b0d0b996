-- What is paused: a tenant, or one of its agents or tools; providers and pools under the default tenant.
--   resumed_at  since when it is not any more; kept until the sends that waited for it are woken
CREATE TABLE pauses (
    tenant     INT          NOT NULL,
    kind       VARCHAR(16)  NOT NULL,
    name       VARCHAR(200) NOT NULL,
    reason     TEXT,
    created_at BIGINT       NOT NULL,
    resumed_at BIGINT,
    PRIMARY KEY (tenant, kind, name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Sends that were parked because of a pause, or are about to be.
CREATE TABLE pause_waits (
    tenant       INT          NOT NULL,
    send_id      BINARY(16)   NOT NULL,
    pause_tenant INT          NOT NULL,
    kind         VARCHAR(16)  NOT NULL,
    name         VARCHAR(200) NOT NULL,
    PRIMARY KEY (tenant, send_id),
    KEY pause_waits_pause (pause_tenant, kind, name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The sends that requests of a tenant with a limit of open sends made, or are about to make. What ended is
-- removed when there seems to be no place left.
CREATE TABLE open_sends (
    tenant      INT        NOT NULL,
    send_id     BINARY(16) NOT NULL,
    reserved_at BIGINT     NOT NULL,
    PRIMARY KEY (tenant, send_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
