-- Stores the cost of a fold that was written while its session was at rest, whoever owns the
-- session now, and attaches the fold if no worker owns the session and its context is unchanged.
-- Returns the step that attached it, and whether a worker owns the session with an unchanged
-- context; no row for a session that is deleted or a send that is gone.
-- Index: session_hot_pkey, sessions_pkey, sends_pkey, usage_rows_pkey and folds_shown.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
hot AS MATERIALIZED (
    SELECT h.tenant, h.session_id, h.owner_boot, h.next_step, h.context_version
    FROM session_hot h
    WHERE h.tenant = $2::integer AND h.session_id = $3::uuid
      AND EXISTS (
          SELECT FROM sessions s WHERE s.tenant = $2::integer AND s.session_id = $3::uuid
      )
      AND EXISTS (SELECT FROM sends s WHERE s.tenant = $2::integer AND s.send_id = $4::uuid)
    FOR UPDATE OF h
),
paid AS (
    INSERT INTO usage_rows (
        tenant, session_id, send_id, round, attempt, model, usage, at, purpose
    )
    SELECT
        h.tenant, h.session_id, $4::uuid, u.round, u.attempt, u.model, u.usage, c.now, u.purpose
    FROM unnest(
        $8::bigint[], $9::integer[], $10::integer[], $11::text[], $12::text[], $22::integer[],
        $23::integer[], $24::text[]
    ) AS u (ord, round, attempt, model, usage, step_round, step_attempt, purpose)
    CROSS JOIN hot h CROSS JOIN clock c
    -- A step may have stored it before its worker lost the lease.
    WHERE NOT EXISTS (
        SELECT FROM usage_rows s
        WHERE s.tenant = $2::integer AND s.send_id = $4::uuid
          AND s.round = u.step_round AND s.attempt = u.step_attempt
    )
    ON CONFLICT (tenant, send_id, round, attempt) DO NOTHING
),
fold AS MATERIALIZED (
    SELECT
        h.tenant, h.session_id, h.next_step, c.now, h.context_version + 1 AS n, f.from_seq,
        f.to_seq, f.level, f.kind, f.text, f.model, f.tokens_before, f.tokens_after
    FROM unnest(
        $13::bigint[], $14::bigint[], $15::bigint[], $16::integer[], $17::text[], $18::text[],
        $19::text[], $20::bigint[], $21::bigint[]
    ) AS f (
        ord, from_seq, to_seq, level, kind, text, model, tokens_before, tokens_after
    )
    CROSS JOIN hot h CROSS JOIN clock c
    WHERE h.owner_boot IS NULL AND h.context_version = $5::bigint
),
moved AS (
    UPDATE session_hot h SET next_step = f.next_step + 1, context_version = f.n
    FROM fold f
    WHERE h.tenant = f.tenant AND h.session_id = f.session_id
),
new_step AS (
    INSERT INTO steps (tenant, session_id, n, send_id, kind, epoch, boot, at, refs)
    SELECT f.tenant, f.session_id, f.next_step, $4::uuid, 'folded', 0, $6::uuid, f.now, $7::text
    FROM fold f
),
covered AS (
    UPDATE folds o SET covered_by = f.n
    FROM fold f
    WHERE o.tenant = f.tenant AND o.session_id = f.session_id AND o.covered_by IS NULL
      AND o.from_seq >= f.from_seq AND o.to_seq <= f.to_seq
),
new_fold AS (
    INSERT INTO folds (
        tenant, session_id, n, from_seq, to_seq, level, kind, text, model, tokens_before,
        tokens_after, send_id, created_at
    )
    SELECT
        f.tenant, f.session_id, f.n, f.from_seq, f.to_seq, f.level, f.kind, f.text, f.model,
        f.tokens_before, f.tokens_after, $4::uuid, f.now
    FROM fold f
)
SELECT
    (SELECT f.next_step FROM fold f) AS step,
    h.owner_boot IS NOT NULL AND h.context_version = $5::bigint AS busy
FROM hot h
