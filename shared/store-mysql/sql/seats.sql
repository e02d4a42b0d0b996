-- What MySQL says differently about seats.

-- name: seats/limits
-- The seats of the tenant $1, locked: nobody else takes or calls any until the transaction ends.
SELECT sends_running, leaves_running FROM seat_limits WHERE tenant = $1 FOR UPDATE;

-- name: seats/taken
-- Seats taken of the tenant $1, those of leaves among them, by the primary key. What ended may be among them.
SELECT count(*) AS sends, CAST(coalesce(sum(leaf), 0) AS SIGNED) AS leaves
FROM seats WHERE tenant = $1 AND waits_since IS NULL;

-- name: seats/put
-- Notes that the session $2 has a seat ($4 is null) or waits for one. Who waits already keeps its place. Index: the
-- primary key. Assignments run from left to right.
INSERT INTO seats (tenant, session_id, leaf, waits_since) VALUES ($1, $2, $3, $4)
ON DUPLICATE KEY UPDATE
    leaf = VALUES(leaf),
    waits_since = CASE WHEN VALUES(waits_since) IS NOT NULL
                       THEN coalesce(seats.waits_since, VALUES(waits_since)) END,
    called_at = NULL;

-- name: seats/set
-- Sets the seats of the tenant $1. Index: the primary key.
INSERT INTO seat_limits (tenant, sends_running, leaves_running, set_at) VALUES ($1, $2, $3, $4)
ON DUPLICATE KEY UPDATE
    sends_running = VALUES(sends_running), leaves_running = VALUES(leaves_running);

-- name: seats/seed
-- Gives seats to what runs of the tenant $1. Index: sends_open.
INSERT INTO seats (tenant, session_id, leaf)
SELECT s.tenant, s.session_id, s.run_id IS NOT NULL
FROM sends s
WHERE s.tenant = $1 AND s.finished_at IS NULL AND s.position IS NOT NULL AND s.status = 'running'
ON DUPLICATE KEY UPDATE leaf = VALUES(leaf), waits_since = NULL, called_at = NULL;
