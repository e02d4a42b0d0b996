-- What an API key may use besides its tenant, as JSON; all that the tenant may where it is null.
ALTER TABLE api_keys ADD COLUMN limits TEXT;
-- The sends that requests with a key with a limit of open sends made, or are about to make. What ended is removed when
-- there seems to be no place left.
CREATE TABLE key_sends (
    tenant      INTEGER NOT NULL,
    key_id      UUID    NOT NULL,
    send_id     UUID    NOT NULL,
    reserved_at BIGINT  NOT NULL,
    PRIMARY KEY (tenant, key_id, send_id)
);
-- The ledger of money keeps tokens, too: what calls took by day, and what those under way take at most.
ALTER TABLE money_days ADD COLUMN tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE money_aside ADD COLUMN tokens BIGINT NOT NULL DEFAULT 0;
-- Tenants with a limit of tokens that is kept there: every worker asks for them again and again.
CREATE INDEX tenants_tokens ON tenants (tenant)
    WHERE limits LIKE '%"tokens_per_day"%' OR limits LIKE '%"tokens_per_month"%';
-- The pools of workers that a tenant may name, and those that are its own, as JSON; any where it is null.
ALTER TABLE tenants ADD COLUMN pools TEXT;
CREATE INDEX tenants_pools ON tenants (tenant) WHERE pools IS NOT NULL;
