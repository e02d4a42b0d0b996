-- Counts the taken places of a tenant, and those of them that the given sends have.
-- Index: open_sends_pkey.
SELECT count(*) AS taken,
       count(*) FILTER (WHERE o.send_id = ANY ($2::uuid[])) AS had
FROM open_sends o WHERE o.tenant = $1::integer
