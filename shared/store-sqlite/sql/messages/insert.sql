-- Messages of one send, from a JSON array that says of each what is its own.
INSERT INTO messages (tenant, session_id, seq, send_id, role, content, tool_calls, tool_call_id,
                      name, round, asked_at_seq, epoch, created_at)
SELECT $1, $2, value ->> 'seq', $3, value ->> 'role', value ->> 'content', value ->> 'tool_calls',
       value ->> 'tool_call_id', value ->> 'name', value ->> 'round', value ->> 'asked_at_seq',
       $4, $5
FROM json_each($6);
