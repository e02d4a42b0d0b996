-- Writes the inputs of queued sends that were extended and whose hot rows are locked.
-- Index: sends_pkey.
UPDATE sends s SET input = i.input
FROM unnest($1::integer[], $2::uuid[], $3::text[]) AS i (tenant, send_id, input)
WHERE s.tenant = i.tenant AND s.send_id = i.send_id
