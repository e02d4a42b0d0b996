-- Ends an extraction, if the attempt is still its current one.
DELETE FROM extractions WHERE tenant = $1 AND send_id = $2 AND token = $3;
