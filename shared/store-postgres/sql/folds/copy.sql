-- Stores the folds of a copied session; the last number becomes the context version.
-- Index: session_hot_pkey.
WITH copied AS (
    INSERT INTO folds (
        tenant, session_id, n, from_seq, to_seq, level, kind, text, model, tokens_before,
        tokens_after, send_id, created_at, covered_by
    )
    SELECT
        $1::integer, $2::uuid, f.n, f.from_seq, f.to_seq, f.level, f.kind, f.text, f.model,
        f.tokens_before, f.tokens_after, f.send_id, f.created_at, f.covered_by
    FROM unnest(
        $3::bigint[], $4::bigint[], $5::bigint[], $6::integer[], $7::text[], $8::text[],
        $9::text[], $10::bigint[], $11::bigint[], $12::uuid[], $13::bigint[], $14::bigint[]
    ) AS f (
        n, from_seq, to_seq, level, kind, text, model, tokens_before, tokens_after, send_id,
        created_at, covered_by
    )
    RETURNING n
)
UPDATE session_hot h SET context_version = (SELECT max(c.n) FROM copied c)
WHERE h.tenant = $1::integer AND h.session_id = $2::uuid
