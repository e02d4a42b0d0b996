-- Part of a step: the usage of the model responses of the JSON array $40. A repeat has the same
-- values.
INSERT INTO usage_rows (tenant, session_id, send_id, round, attempt, model, "usage", at,
                        purpose)
SELECT $1, $2, $18, value ->> 'round', value ->> 'attempt', value ->> 'model', value ->> 'usage', $22,
       CASE value ->> 'round' WHEN -2 THEN 'fold' WHEN -3 THEN 'embed' END
FROM json_each($40)
WHERE true
ON CONFLICT (tenant, send_id, round, attempt) DO UPDATE SET model = excluded.model, "usage" = excluded.usage;
