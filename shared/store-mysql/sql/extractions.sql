-- What MySQL says differently about extractions.

-- name: extractions/owe
-- Notes an extraction; does nothing where it is known.
INSERT INTO extractions (tenant, send_id, session_id, pool, namespace, spec, due_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON DUPLICATE KEY UPDATE due_at = due_at;

-- name: extractions/due
-- Extractions of a pool that are due by $2, at most $3, by extractions_due, locked.
SELECT tenant, session_id, send_id, spec, attempts
FROM extractions
WHERE pool = $1 AND due_at <= $2
ORDER BY due_at
LIMIT $3
FOR UPDATE SKIP LOCKED;

-- name: extractions/one
-- An extraction of a pool that nobody works on, locked.
SELECT tenant, session_id, send_id, spec, attempts
FROM extractions
WHERE pool = $1 AND tenant = $2 AND send_id = $3 AND token IS NULL
FOR UPDATE SKIP LOCKED;

-- name: extractions/pay
-- Stores what a model call cost that is no round of its send.
INSERT INTO usage_rows (tenant, session_id, send_id, round, attempt, model, "usage", at, purpose)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON DUPLICATE KEY UPDATE purpose = purpose;
