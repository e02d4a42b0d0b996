-- Inserts the calls of the JSON array $4, which the send $3 requests at $5.
INSERT INTO tool_calls (tenant, session_id, call_id, send_id, round, place, name, arguments, "repeat",
                        waits_on, approval, started_epoch, attempt, deadline_at, result,
                        requested_at, settled_at)
SELECT $1, $2, value ->> 'call_id', $3, value ->> 'round', value ->> 'place', value ->> 'name',
       value ->> 'arguments', value ->> 'repeat', value ->> 'waits_on', value ->> 'approval',
       value ->> 'started_epoch', value ->> 'started_epoch' IS NOT NULL, value ->> 'deadline_at',
       value ->> 'result', $5, CASE WHEN value ->> 'result' IS NOT NULL THEN $5 END
FROM json_each($4);
