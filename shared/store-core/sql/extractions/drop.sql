-- Gives up an extraction.
DELETE FROM extractions WHERE tenant = $1 AND send_id = $2;
