-- Part of a step: inserts the messages of the JSON array $39, which holds what differs between
-- them.
INSERT INTO messages (tenant, session_id, seq, send_id, role, content, tool_calls, tool_call_id,
                      name, failed, round, asked_at_seq, epoch, created_at)
SELECT $1, $2, value ->> 'seq', $18, value ->> 'role', value ->> 'content', value ->> 'tool_calls',
       value ->> 'tool_call_id', value ->> 'name', value ->> 'failed', value ->> 'round',
       value ->> 'asked_at_seq', $20, $22
FROM json_each($39);
