-- Reads, for freshly claimed sessions, the messages of the active window that the caller's cache
-- lacks: those from `from_seq` on, or from the message that asked if the window would begin with an
-- answer.
-- Index: messages_pkey; the cost depends on the window, not on the transcript.
WITH item AS MATERIALIZED (
    SELECT
        i.ord, i.tenant, i.session_id, i.next_seq, i.cached_next_seq, i.cached_from_seq,
        coalesce((
            SELECT a.asked_at_seq FROM messages a
            WHERE a.tenant = i.tenant AND a.session_id = i.session_id
              AND a.seq = i.from_seq
        ), i.from_seq) AS from_seq
    FROM unnest(
        $1::integer[], $2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]
    ) WITH ORDINALITY AS i (
        tenant, session_id, next_seq, cached_next_seq, cached_from_seq, from_seq, ord
    )
)
SELECT
    i.ord, {w.message}
FROM item i
CROSS JOIN LATERAL (
    SELECT
        {m.message}
    FROM messages m
    WHERE m.tenant = i.tenant AND m.session_id = i.session_id
      AND m.seq >= CASE
          WHEN i.cached_next_seq > 0 AND i.cached_from_seq <= i.from_seq
              AND (i.cached_next_seq > i.from_seq OR i.cached_next_seq = i.next_seq)
              THEN i.cached_next_seq
          ELSE i.from_seq
      END
    ORDER BY m.seq
    -- Keeps the planner from joining the other way around.
    OFFSET 0
) w
ORDER BY i.ord, w.seq
