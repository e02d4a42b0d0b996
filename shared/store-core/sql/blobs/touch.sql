-- Begins the grace of a stored blob anew, and locks its row against a sweep.
UPDATE blobs SET used_at = $3 WHERE tenant = $1 AND sha256 = $2 AND state = 1;
