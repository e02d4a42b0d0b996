-- The first of the open sends of the tenant $1, by sends_open: the primary key has all that ended, too.
SELECT min(send_id) AS send_id FROM sends INDEXED BY sends_open WHERE tenant = $1 AND finished_at IS NULL;
