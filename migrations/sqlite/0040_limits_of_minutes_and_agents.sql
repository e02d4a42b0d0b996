-- The ledger of money keeps what the calls cost that began in a minute, too: the last one of the day that was counted,
-- in minutes from 1970, of tenants whose money of a minute is limited.
ALTER TABLE money_days ADD COLUMN minute INTEGER NOT NULL DEFAULT 0;
ALTER TABLE money_days ADD COLUMN minute_spent INTEGER NOT NULL DEFAULT 0;
-- What an agent may use besides its tenant, as JSON; all that the tenant may where it is null.
ALTER TABLE agents_named ADD COLUMN limits TEXT;
CREATE INDEX agents_limited ON agents_named (tenant, name) WHERE limits IS NOT NULL;
