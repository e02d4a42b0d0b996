-- Removes a page of each kind of rows that a deleted session left behind: messages after $3, calls
-- and usage of the next $6 sends after $4, at most $5 of each, and what these sends said and were
-- answered unless their parent or run still has to read it. Nobody else writes these rows any more, and starting after those numbers keeps a page from scanning what earlier ones removed.
-- Call ids begin with the id of their send.
-- Index: the primary keys; sends_session for the calls and the usage.
WITH
    m AS (
        DELETE FROM messages d
        USING (
            SELECT x.seq FROM messages x
            WHERE x.tenant = $1::integer AND x.session_id = $2::uuid AND x.seq > $3::bigint
            ORDER BY x.seq
            LIMIT $5::bigint
        ) p
        WHERE d.tenant = $1::integer AND d.session_id = $2::uuid AND d.seq = p.seq
        RETURNING d.seq
    ),
    page AS MATERIALIZED (
        SELECT s.send_id FROM sends s
        WHERE s.session_id = $2::uuid AND s.tenant = $1::integer AND s.send_id > $4::uuid
        ORDER BY s.send_id
        LIMIT $6::bigint
    ),
    blank AS (
        UPDATE sends s SET input = '[]', options = '{}', output_text = NULL, output = NULL
        FROM page p
        WHERE s.tenant = $1::integer AND s.send_id = p.send_id AND s.finished_at IS NOT NULL
          AND (s.reports_to IS NULL OR s.reported_at IS NOT NULL)
          AND (s.run_id IS NULL OR NOT EXISTS (
              SELECT FROM runs r WHERE r.tenant = s.tenant AND r.run_id = s.run_id
          ))
    ),
    c AS (
        DELETE FROM tool_calls d
        WHERE d.ctid = ANY (ARRAY(
            SELECT l.ctid
            FROM page p
            CROSS JOIN LATERAL (
                SELECT x.ctid, x.call_id FROM tool_calls x
                WHERE x.tenant = $1::integer
                  AND x.call_id >= 'call_' || replace(p.send_id::text, '-', '') || '_'
                  AND x.call_id < 'call_' || replace(p.send_id::text, '-', '') || '`'
                -- Keeps the planner from reading the calls of all sends at once.
                OFFSET 0
            ) l
            ORDER BY l.call_id COLLATE "C"
            LIMIT $5::bigint
        ))
        RETURNING 1
    ),
    u AS (
        DELETE FROM usage_rows d
        USING (
            SELECT x.send_id, x.round, x.attempt
            FROM page p
            JOIN usage_rows x ON x.tenant = $1::integer AND x.send_id = p.send_id
            ORDER BY x.send_id, x.round, x.attempt
            LIMIT $5::bigint
        ) p
        WHERE d.tenant = $1::integer AND d.send_id = p.send_id AND d.round = p.round
          AND d.attempt = p.attempt
        RETURNING 1
    ),
    n AS (
        DELETE FROM inbox d
        USING (
            SELECT x.item_id FROM inbox x
            WHERE x.tenant = $1::integer AND x.session_id = $2::uuid
            ORDER BY x.item_id COLLATE "C"
            LIMIT $5::bigint
        ) p
        WHERE d.tenant = $1::integer AND d.session_id = $2::uuid AND d.item_id = p.item_id
        RETURNING 1
    ),
    a AS (
        DELETE FROM agents d
        USING (
            SELECT x.version FROM agents x
            WHERE x.tenant = $1::integer AND x.session_id = $2::uuid
            ORDER BY x.version
            LIMIT $5::bigint
        ) p
        WHERE d.tenant = $1::integer AND d.session_id = $2::uuid AND d.version = p.version
        RETURNING 1
    ),
    f AS (
        DELETE FROM folds d
        USING (
            SELECT x.n FROM folds x
            WHERE x.tenant = $1::integer AND x.session_id = $2::uuid
            ORDER BY x.n
            LIMIT $5::bigint
        ) p
        WHERE d.tenant = $1::integer AND d.session_id = $2::uuid AND d.n = p.n
        RETURNING 1
    ),
    r AS (
        DELETE FROM projections d
        USING (
            SELECT x.from_seq FROM projections x
            WHERE x.tenant = $1::integer AND x.session_id = $2::uuid
            ORDER BY x.from_seq
            LIMIT $5::bigint
        ) p
        WHERE d.tenant = $1::integer AND d.session_id = $2::uuid AND d.from_seq = p.from_seq
        RETURNING 1
    )
SELECT
    (SELECT count(*) FROM m) AS messages, (SELECT max(m.seq) FROM m) AS seq,
    (SELECT count(*) FROM page) AS sends,
    (SELECT p.send_id FROM page p ORDER BY p.send_id DESC LIMIT 1) AS send_id,
    (SELECT count(*) FROM c) AS calls, (SELECT count(*) FROM u) AS usage,
    (SELECT count(*) FROM n) AS items, (SELECT count(*) FROM a) AS agents,
    (SELECT count(*) FROM f) AS folds, (SELECT count(*) FROM r) AS projections
