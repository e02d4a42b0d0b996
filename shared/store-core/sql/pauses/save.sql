-- Pauses something from $5 on. An active pause keeps its start, and its reason if $4 is
-- null. Index: the primary key. MySQL assigns from left to right: what the others read comes last.
INSERT INTO pauses (tenant, kind, name, reason, created_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant, kind, name) DO UPDATE SET
    reason = CASE WHEN pauses.resumed_at IS NULL THEN coalesce(excluded.reason, pauses.reason)
                  ELSE excluded.reason END,
    created_at = CASE WHEN pauses.resumed_at IS NULL THEN pauses.created_at
                      ELSE excluded.created_at END,
    resumed_at = NULL;
