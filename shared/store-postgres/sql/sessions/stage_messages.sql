-- Stores copied messages after $3 others. A repeat stores nothing.
-- Index: messages_pkey.
INSERT INTO messages (
    tenant, session_id, seq, send_id, role, content, tool_calls, tool_call_id, name, failed, round,
    asked_at_seq, epoch, created_at
)
SELECT
    $1::integer, $2::uuid, $3::bigint + m.seq, m.send_id, m.role, m.content, m.tool_calls,
    m.tool_call_id, m.name, m.failed, m.round, m.asked_at_seq, 0, m.created_at
FROM unnest(
    $4::uuid[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::boolean[],
    $11::integer[], $12::bigint[], $13::bigint[]
) WITH ORDINALITY AS m (
    send_id, role, content, tool_calls, tool_call_id, name, failed, round, asked_at_seq, created_at,
    seq
)
ON CONFLICT DO NOTHING
