-- Removes a list and everything that belongs to it.
-- Index: the primary keys.
WITH
    e AS (DELETE FROM list_entries d WHERE d.tenant = $1::integer AND d.list = $2::text),
    w AS (DELETE FROM list_writes d WHERE d.tenant = $1::integer AND d.list = $2::text)
DELETE FROM lists d WHERE d.tenant = $1::integer AND d.list = $2::text
