-- Stores what a send is shown as once it is old, replacing what was stored before. By its key.
INSERT INTO projections (tenant, session_id, {projection})
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (tenant, session_id, from_seq) DO UPDATE SET
    to_seq = excluded.to_seq, send_id = excluded.send_id, version = excluded.version,
    digest = excluded.digest;
