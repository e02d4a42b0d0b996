-- What the calls of tenants with a limit of money cost, by day (in UTC, counted from 1970), in billionths of a US
-- dollar. Of a month it is complete: what was spent before the first call under a limit is part of its first row.
CREATE TABLE money_days (
    tenant INT    NOT NULL,
    day    BIGINT NOT NULL,
    spent  BIGINT NOT NULL CHECK (spent >= 0),
    PRIMARY KEY (tenant, day)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What calls under way cost at most, until they are settled. The lock is that of the tenant's row.
--   boot_id  whose calls they are: without its lease they count as made
--   day      on which they count
CREATE TABLE money_aside (
    tenant  INT        NOT NULL,
    call_id BINARY(16) NOT NULL,
    boot_id BINARY(16) NOT NULL,
    day     BIGINT     NOT NULL,
    amount  BIGINT     NOT NULL CHECK (amount >= 0),
    at      BIGINT     NOT NULL,
    PRIMARY KEY (tenant, call_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
