-- Counts the taken places of the key $2, by the primary key.
SELECT count(*) FROM key_sends WHERE tenant = $1 AND key_id = $2;
