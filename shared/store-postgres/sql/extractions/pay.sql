-- Stores the cost of a model call that is not a round of its send.
-- Index: the primary key.
INSERT INTO usage_rows (tenant, session_id, send_id, round, attempt, model, usage, at, purpose)
VALUES (
    $1::integer, $2::uuid, $3::uuid, $4::integer, $5::integer, $6::text, $7::text, $8::bigint,
    $9::text
)
ON CONFLICT (tenant, send_id, round, attempt) DO NOTHING
