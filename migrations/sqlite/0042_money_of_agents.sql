-- What the calls of agents with a limit of money or tokens of their own cost and took, by day, as in money_days, from the
-- first call under the limit on. A table of its own: releases that know accounts of tenants alone count none of its rows.
--   holder  the agent, by an id that is made of its name
CREATE TABLE agent_money_days (
    tenant       INTEGER NOT NULL,
    holder       BLOB    NOT NULL,
    day          INTEGER NOT NULL,
    spent        INTEGER NOT NULL CHECK (spent >= 0),
    tokens       INTEGER NOT NULL CHECK (tokens >= 0),
    minute       INTEGER NOT NULL DEFAULT 0,
    minute_spent INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, holder, day)
) STRICT;
-- What calls of such agents that are under way cost at most, until they are settled, as in money_aside, which has it too
-- where the tenant is limited.
CREATE TABLE agent_money_aside (
    tenant  INTEGER NOT NULL,
    call_id BLOB    NOT NULL,
    holder  BLOB    NOT NULL,
    boot_id BLOB    NOT NULL,
    day     INTEGER NOT NULL,
    amount  INTEGER NOT NULL CHECK (amount >= 0),
    tokens  INTEGER NOT NULL CHECK (tokens >= 0),
    at      INTEGER NOT NULL,
    PRIMARY KEY (tenant, call_id)
) STRICT;
