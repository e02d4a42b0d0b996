-- What the calls of tenants with a limit of money cost, by day (in UTC, counted from 1970), in billionths of a US
-- dollar. Of a month it is complete: what was spent before the first call under a limit is part of its first row.
CREATE TABLE money_days (
    tenant INTEGER NOT NULL,
    day    INTEGER NOT NULL,
    spent  INTEGER NOT NULL CHECK (spent >= 0),
    PRIMARY KEY (tenant, day)
) STRICT;
-- What calls under way cost at most, until they are settled.
--   boot_id  whose calls they are: without its lease they count as made
--   day      on which they count
CREATE TABLE money_aside (
    tenant  INTEGER NOT NULL,
    call_id BLOB    NOT NULL,
    boot_id BLOB    NOT NULL,
    day     INTEGER NOT NULL,
    amount  INTEGER NOT NULL CHECK (amount >= 0),
    at      INTEGER NOT NULL,
    PRIMARY KEY (tenant, call_id)
) STRICT;
