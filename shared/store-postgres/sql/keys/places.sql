-- Counts the taken places of a key, and those of them that the given sends have.
-- Index: key_sends_pkey.
SELECT count(*) AS taken,
       count(*) FILTER (WHERE o.send_id = ANY ($3::uuid[])) AS had
FROM key_sends o WHERE o.tenant = $1::integer AND o.key_id = $2::uuid
