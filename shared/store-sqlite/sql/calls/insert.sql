-- Part of a step: the calls of round $28, from the JSON array $27. Those that come with their
-- result are settled.
INSERT INTO tool_calls (tenant, session_id, call_id, send_id, round, place, name, arguments, result,
                        failed, settled_at)
SELECT $1, $2, value ->> 'call_id', $16, $28, value ->> 'place', value ->> 'name',
       value ->> 'arguments', value ->> 'result', value ->> 'failed',
       CASE WHEN value ->> 'result' IS NOT NULL THEN $20 END
FROM json_each($27);
