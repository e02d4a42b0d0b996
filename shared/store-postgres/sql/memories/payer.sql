-- Whether a send and its session exist to pay for something; neither is removed until the
-- transaction ends.
-- Indexes: sends_pkey, sessions_pkey.
SELECT s.send_id
FROM sends s
JOIN sessions c ON c.tenant = s.tenant AND c.session_id = s.session_id
WHERE s.tenant = $1::integer AND s.session_id = $2::uuid AND s.send_id = $3::uuid
FOR KEY SHARE
