-- Writes runs after advances. A run without a row in the result is not owned by the boot, or was
-- advanced in the meantime.
-- Index: runs_pkey.
UPDATE runs r SET
    status = i.status,
    attempt = i.attempt,
    options = i.options,
    result = i.result,
    error = i.error,
    usage = i.usage,
    counts = i.counts,
    alarm_at = i.alarm_at,
    started_at = i.started_at,
    finished_at = i.finished_at,
    owner_boot = CASE WHEN i.keeps THEN r.owner_boot END,
    step = r.step + 1,
    claims = 0
FROM unnest(
    $2::integer[], $3::uuid[], $4::bigint[], $5::text[], $6::integer[], $7::text[], $8::text[],
    $9::text[], $10::text[], $11::text[], $12::bigint[], $13::bigint[], $14::bigint[],
    $15::boolean[]
) WITH ORDINALITY AS i (
    tenant, run_id, step, status, attempt, options, result, error, usage, counts, alarm_at,
    started_at, finished_at, keeps, ord
)
WHERE r.tenant = i.tenant AND r.run_id = i.run_id AND r.owner_boot = $1::uuid AND r.step = i.step
RETURNING i.ord
