-- Writes the sums and the usage of sends whose hot rows are locked.
-- Index: sends_pkey.
WITH summed AS (
    UPDATE sends s SET usage = i.usage, rounds = i.rounds, attempts = i.attempts
    FROM unnest($2::integer[], $3::uuid[], $4::text[], $5::integer[], $6::integer[])
        WITH ORDINALITY AS i (tenant, send_id, usage, rounds, attempts, ord)
    WHERE s.tenant = i.tenant AND s.send_id = i.send_id
    RETURNING s.tenant, s.session_id, s.send_id, i.ord
)
INSERT INTO usage_rows (tenant, session_id, send_id, round, attempt, model, usage, at)
SELECT t.tenant, t.session_id, t.send_id, u.round, u.attempt, u.model, u.usage, $1::bigint
FROM unnest($7::bigint[], $8::integer[], $9::integer[], $10::text[], $11::text[])
    AS u (ord, round, attempt, model, usage)
JOIN summed t ON t.ord = u.ord
