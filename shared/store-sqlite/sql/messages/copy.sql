-- A copied transcript, the JSON array $3, of a session that was just created: copies are of epoch 0.
INSERT INTO messages (tenant, session_id, seq, send_id, role, content, tool_calls, tool_call_id,
                      name, failed, round, asked_at_seq, epoch, created_at)
SELECT $1, $2, value ->> 'seq', unhex(value ->> 'send'), value ->> 'role', value ->> 'content',
       value ->> 'tool_calls', value ->> 'tool_call_id', value ->> 'name', value ->> 'failed',
       value ->> 'round', value ->> 'asked_at_seq', 0, value ->> 'created_at'
FROM json_each($3);
UPDATE session_hot SET next_seq = next_seq + json_array_length($3)
WHERE tenant = $1 AND session_id = $2;
