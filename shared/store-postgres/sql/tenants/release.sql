-- Releases places. Index: open_sends_pkey.
DELETE FROM open_sends o WHERE o.tenant = $1::integer AND o.send_id = ANY ($2::uuid[])
