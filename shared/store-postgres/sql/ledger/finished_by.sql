-- Reads the final steps that a process wrote for sends, to resolve a commit whose response was
-- lost.
-- Index: sends_pkey, steps_pkey.
SELECT t.tenant, t.send_id, t.n
FROM unnest($1::integer[], $2::uuid[]) AS i (tenant, send_id)
JOIN sends s ON s.tenant = i.tenant AND s.send_id = i.send_id
JOIN steps t
    ON t.tenant = s.tenant AND t.session_id = s.session_id AND t.n > s.first_step
    AND t.send_id = s.send_id AND t.kind = 'finished' AND t.boot = $3::uuid
