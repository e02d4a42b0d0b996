-- What MySQL says differently about what sends are shown as once they are old.

-- name: projections/save
-- What a send is shown as once it is old, in the place of what was stored of it before.
INSERT INTO projections (tenant, session_id, {projection})
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON DUPLICATE KEY UPDATE to_seq = $4, send_id = $5, version = $6, digest = $7;
