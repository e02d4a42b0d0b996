-- Counts the death of a worker under a send that is left alone, and a model call that it may have
-- begun.
UPDATE sends SET crashes = crashes + 1, attempts = attempts + 1 WHERE tenant = $1 AND send_id = $2;
