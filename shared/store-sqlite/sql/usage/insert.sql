-- Model responses of one send, from a JSON array. One that is reported again says the same.
INSERT INTO usage_rows (tenant, session_id, send_id, round, attempt, model, usage, at)
SELECT $1, $2, $3, value ->> 'round', value ->> 'attempt', value ->> 'model', value ->> 'usage', $4
FROM json_each($5)
WHERE true
ON CONFLICT (tenant, send_id, round, attempt) DO UPDATE SET model = excluded.model, usage = excluded.usage;
