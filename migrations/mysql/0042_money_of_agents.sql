-- What the calls of agents with a limit of money or tokens of their own cost and took, by day, as in money_days, from the
-- first call under the limit on. A table of its own: releases that know accounts of tenants alone count none of its rows.
--   holder  the agent, by an id that is made of its name
CREATE TABLE agent_money_days (
    tenant       INT        NOT NULL,
    holder       BINARY(16) NOT NULL,
    day          BIGINT     NOT NULL,
    spent        BIGINT     NOT NULL CHECK (spent >= 0),
    tokens       BIGINT     NOT NULL CHECK (tokens >= 0),
    minute       BIGINT     NOT NULL DEFAULT 0,
    minute_spent BIGINT     NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, holder, day)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What calls of such agents that are under way cost at most, until they are settled, as in money_aside, which has it too
-- where the tenant is limited. The lock is that of the tenant's row.
CREATE TABLE agent_money_aside (
    tenant  INT        NOT NULL,
    call_id BINARY(16) NOT NULL,
    holder  BINARY(16) NOT NULL,
    boot_id BINARY(16) NOT NULL,
    day     BIGINT     NOT NULL,
    amount  BIGINT     NOT NULL CHECK (amount >= 0),
    tokens  BIGINT     NOT NULL CHECK (tokens >= 0),
    at      BIGINT     NOT NULL,
    PRIMARY KEY (tenant, call_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Agents with limits, for whose tenants every worker asks again and again. There are no partial indexes here: those
-- without limits have NULL.
CREATE INDEX agents_limited ON agents_named (limits(1), tenant);
