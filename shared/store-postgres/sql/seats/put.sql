-- Notes who has a seat (`since` is null) and who waits for one. Who waits already keeps its place in the line.
-- Index: seats_pkey.
INSERT INTO seats AS t (tenant, session_id, leaf, waits_since)
SELECT $1::integer, i.session_id, i.leaf, i.since
FROM unnest($2::uuid[], $3::boolean[], $4::bigint[]) AS i (session_id, leaf, since)
ON CONFLICT (tenant, session_id) DO UPDATE SET
    leaf = excluded.leaf,
    waits_since = CASE WHEN excluded.waits_since IS NOT NULL
                       THEN coalesce(t.waits_since, excluded.waits_since) END,
    called_at = NULL
