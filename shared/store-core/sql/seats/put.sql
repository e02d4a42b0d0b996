-- Notes that the session $2 has a seat ($4 is null) or waits for one. Who waits already keeps its place. By the
-- primary key.
INSERT INTO seats (tenant, session_id, leaf, waits_since) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant, session_id) DO UPDATE SET
    leaf = excluded.leaf,
    waits_since = CASE WHEN excluded.waits_since IS NOT NULL
                       THEN coalesce(seats.waits_since, excluded.waits_since) END,
    called_at = NULL;
