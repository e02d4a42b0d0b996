-- The round whose calls have no answers in the transcript yet: that of the last message, at $3, if
-- it is one of the send $4 that asks for calls.
SELECT round FROM messages
WHERE tenant = $1 AND session_id = $2 AND seq = $3 AND send_id = $4
  AND role = 'assistant' AND tool_calls IS NOT NULL;
