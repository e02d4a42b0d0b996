-- Stores the copied messages of the JSON array $3; copies have epoch 0. A repeat stores nothing.
INSERT INTO messages (tenant, session_id, seq, send_id, role, content, tool_calls, tool_call_id,
                      name, failed, round, asked_at_seq, epoch, created_at)
SELECT $1, $2, value ->> 'seq', unhex(value ->> 'send'), value ->> 'role', value ->> 'content',
       value ->> 'tool_calls', value ->> 'tool_call_id', value ->> 'name', value ->> 'failed',
       value ->> 'round', value ->> 'asked_at_seq', 0, value ->> 'created_at'
FROM json_each($3)
WHERE true
ON CONFLICT (tenant, session_id, seq) DO NOTHING;
