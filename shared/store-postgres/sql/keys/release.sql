-- Releases places of a key. Index: key_sends_pkey.
DELETE FROM key_sends o
WHERE o.tenant = $1::integer AND o.key_id = $2::uuid AND o.send_id = ANY ($3::uuid[])
