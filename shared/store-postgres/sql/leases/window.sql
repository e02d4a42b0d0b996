-- Reads, for freshly claimed sessions, the messages of the active window that the caller's cache
-- lacks: the last `last_messages` (all when null), begun at the message that asked when the window
-- would begin with an answer.
-- Index: messages_pkey; cost follows the window, not the transcript.
SELECT
    w.ord, m.seq, m.send_id, m.role, m.content, m.tool_calls, m.tool_call_id, m.name, m.round,
    m.asked_at_seq, m.epoch, m.created_at
FROM (
    SELECT
        i.ord, i.tenant, i.session_id, i.next_seq, i.cached_next_seq, i.cached_from_seq,
        coalesce((
            SELECT a.asked_at_seq FROM messages a
            WHERE a.tenant = i.tenant AND a.session_id = i.session_id
              AND a.seq = greatest(i.next_seq - i.last_messages, 1)
        ), greatest(i.next_seq - i.last_messages, 1), 1) AS from_seq
    FROM unnest(
        $1::integer[], $2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]
    ) WITH ORDINALITY AS i (
        tenant, session_id, next_seq, cached_next_seq, cached_from_seq, last_messages, ord
    )
) w
JOIN messages m
    ON m.tenant = w.tenant AND m.session_id = w.session_id
    AND m.seq >= CASE
        WHEN w.cached_next_seq > 0 AND w.cached_from_seq <= w.from_seq
            AND (w.cached_next_seq > w.from_seq OR w.cached_next_seq = w.next_seq)
            THEN w.cached_next_seq
        ELSE w.from_seq
    END
ORDER BY w.ord, m.seq
