-- The calls of one round, from a JSON array; those that come with their result are settled.
INSERT INTO tool_calls (tenant, session_id, call_id, send_id, round, place, name, arguments, result,
                        failed, settled_at)
SELECT $1, $2, value ->> 'call_id', $3, $4, value ->> 'place', value ->> 'name',
       value ->> 'arguments', value ->> 'result', value ->> 'failed',
       CASE WHEN value ->> 'result' IS NOT NULL THEN $5 END
FROM json_each($6);
