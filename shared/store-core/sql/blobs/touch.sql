-- Restarts the grace period of a stored blob, and locks its row against a sweep.
UPDATE blobs SET used_at = $3 WHERE tenant = $1 AND sha256 = $2 AND state = 1;
