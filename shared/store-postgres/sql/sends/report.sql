-- Marks locked sends as reported.
-- Index: sends_pkey.
UPDATE sends s SET reported_at = $1::bigint
FROM unnest($2::integer[], $3::uuid[]) AS i (tenant, send_id)
WHERE s.tenant = i.tenant AND s.send_id = i.send_id
