-- Writes the sums and usage rows of sends whose hot rows are locked, and what their sessions have
-- spent.
-- Index: sends_pkey, session_hot_pkey.
WITH summed AS (
    UPDATE sends s SET usage = i.usage, rounds = i.rounds, attempts = i.attempts
    FROM unnest($2::integer[], $3::uuid[], $4::text[], $5::integer[], $6::integer[], $7::text[])
        WITH ORDINALITY AS i (tenant, send_id, usage, rounds, attempts, spent, ord)
    WHERE s.tenant = i.tenant AND s.send_id = i.send_id
    RETURNING s.tenant, s.session_id, s.send_id, i.spent, i.ord
),
moved AS (
    UPDATE session_hot h SET spent = t.spent
    FROM summed t
    WHERE h.tenant = t.tenant AND h.session_id = t.session_id AND t.spent IS NOT NULL
)
INSERT INTO usage_rows (
    tenant, session_id, send_id, round, attempt, model, usage, at, purpose
)
SELECT
    t.tenant, t.session_id, t.send_id, u.round, u.attempt, u.model, u.usage, $1::bigint,
    CASE u.round WHEN -2 THEN 'fold' WHEN -3 THEN 'embed' END
FROM unnest($8::bigint[], $9::integer[], $10::integer[], $11::text[], $12::text[])
    AS u (ord, round, attempt, model, usage)
JOIN summed t ON t.ord = u.ord
