-- Whether sessions accept timers, and how many armed ones they have, where that is asked for.
-- Index: session_hot_pkey, timers_session.
SELECT
    i.ord, h.lifecycle,
    CASE WHEN i.counts THEN (
        SELECT count(*) FROM timers t
        WHERE t.tenant = i.tenant AND t.session_id = i.session_id AND t.status = 'armed'
    ) ELSE 0 END AS armed
FROM unnest($1::integer[], $2::uuid[], $3::boolean[])
    WITH ORDINALITY AS i (tenant, session_id, counts, ord)
JOIN session_hot h ON h.tenant = i.tenant AND h.session_id = i.session_id
