-- Calls of external tools are taken on by one of several programs that could make them. claim is what the holder shows
-- with each report, claimed_until when it lapses, claim_n which claim it is: null together, and without meaning once the
-- call is settled.
ALTER TABLE tool_calls ADD COLUMN claim UUID, ADD COLUMN claimed_until BIGINT, ADD COLUMN claim_n INTEGER;
-- What waits for a person or a client, what can be taken on by name, and what may have lapsed.
CREATE INDEX tool_calls_waiting ON tool_calls (tenant, requested_at, call_id) WHERE waits_on IN ('tool', 'human');
CREATE INDEX tool_calls_claimable ON tool_calls (tenant, name, requested_at, call_id) WHERE waits_on = 'tool';
CREATE INDEX tool_calls_claimed ON tool_calls (claimed_until) WHERE waits_on = 'tool' AND claimed_until IS NOT NULL;
