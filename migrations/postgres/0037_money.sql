-- What the calls of tenants with a limit of money cost, by day (in UTC, counted from 1970), in billionths of a US
-- dollar. Of a month it is complete: what was spent before the first call under a limit is part of its first row.
CREATE TABLE money_days (
    tenant INTEGER NOT NULL,
    day    BIGINT  NOT NULL,
    spent  BIGINT  NOT NULL CHECK (spent >= 0),
    PRIMARY KEY (tenant, day)
);
-- What calls under way cost at most, until they are settled. The lock is that of the tenant's row.
--   boot_id  whose calls they are: without its lease they count as made
--   day      on which they count
CREATE TABLE money_aside (
    tenant  INTEGER NOT NULL,
    call_id UUID    NOT NULL,
    boot_id UUID    NOT NULL,
    day     BIGINT  NOT NULL,
    amount  BIGINT  NOT NULL CHECK (amount >= 0),
    at      BIGINT  NOT NULL,
    PRIMARY KEY (tenant, call_id)
);
-- Tenants with such a limit: every worker asks for them again and again.
CREATE INDEX tenants_money ON tenants (tenant) WHERE limits LIKE '%"usd_per_%';
