-- Gives up an extraction.
-- Index: the primary key.
DELETE FROM extractions WHERE tenant = $1::integer AND send_id = $2::uuid
