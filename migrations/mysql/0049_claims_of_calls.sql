-- Calls of external tools are taken on by one of several programs that could make them. claim is what the holder shows
-- with each report, claimed_until when it lapses, claim_n which claim it is: null together, and without meaning once the
-- call is settled.
-- Indexes of some rows are made of columns that are null in all others: asked_since is set on what waits for a person or
-- a client, claimable on what can be taken on by name, lapses_at on what may have lapsed.
ALTER TABLE tool_calls
    ADD COLUMN claim BINARY(16),
    ADD COLUMN claimed_until BIGINT,
    ADD COLUMN claim_n INT,
    ADD COLUMN asked_since BIGINT AS (CASE WHEN waits_on IN ('tool', 'human') THEN requested_at END) VIRTUAL,
    ADD COLUMN claimable VARCHAR(255) AS (CASE WHEN waits_on = 'tool' THEN name END) VIRTUAL,
    ADD COLUMN lapses_at BIGINT AS (CASE WHEN waits_on = 'tool' THEN claimed_until END) VIRTUAL,
    ADD KEY tool_calls_waiting (tenant, asked_since, call_id),
    ADD KEY tool_calls_claimable (tenant, claimable, requested_at, call_id),
    ADD KEY tool_calls_claimed (lapses_at);
