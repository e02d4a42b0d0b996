-- Writes messages whose numbers were assigned from locked hot rows.
INSERT INTO messages (
    tenant, session_id, seq, send_id, role, content, tool_call_id, name, failed, round,
    asked_at_seq, epoch, created_at
)
SELECT
    i.tenant, i.session_id, i.seq, i.send_id, i.role, i.content, i.tool_call_id, i.name, i.failed,
    i.round, i.asked_at_seq, i.epoch, $1::bigint
FROM unnest(
    $2::integer[], $3::uuid[], $4::bigint[], $5::uuid[], $6::text[], $7::text[], $8::text[],
    $9::text[], $10::boolean[], $11::integer[], $12::bigint[], $13::bigint[]
) AS i (
    tenant, session_id, seq, send_id, role, content, tool_call_id, name, failed, round,
    asked_at_seq, epoch
)
