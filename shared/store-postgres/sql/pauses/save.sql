-- Pauses something. An active pause keeps its start, and its reason if $5 is null.
-- Index: the primary key.
INSERT INTO pauses AS p (tenant, kind, name, reason, created_at)
VALUES ($2::integer, $3::text, $4::text, $5::text,
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint))
ON CONFLICT (tenant, kind, name) DO UPDATE SET
    reason = CASE WHEN p.resumed_at IS NULL THEN coalesce(excluded.reason, p.reason)
                  ELSE excluded.reason END,
    created_at = CASE WHEN p.resumed_at IS NULL THEN p.created_at ELSE excluded.created_at END,
    resumed_at = NULL
RETURNING p.tenant, p.kind, p.name, p.reason, p.created_at
