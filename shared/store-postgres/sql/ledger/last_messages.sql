-- Reads the last messages of transcripts. As only one send of a session is active at a time, an
-- active send has messages exactly if it wrote the last one, and a round is open exactly if the
-- message that asked is still the last one.
-- Index: messages_pkey.
SELECT
    m.tenant, m.session_id, m.send_id, m.round,
    m.role = 'assistant' AND m.tool_calls IS NOT NULL AS asks
FROM unnest($1::integer[], $2::uuid[], $3::bigint[]) AS i (tenant, session_id, seq)
JOIN messages m ON m.tenant = i.tenant AND m.session_id = i.session_id AND m.seq = i.seq
