-- Ends an extraction, if the attempt is still its current one.
-- Index: the primary key.
DELETE FROM extractions WHERE tenant = $1::integer AND send_id = $2::uuid AND token = $3::uuid
