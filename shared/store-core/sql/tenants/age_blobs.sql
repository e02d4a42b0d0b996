-- Lets the blobs of the tenant $1 go, which nothing holds any more.
UPDATE blobs SET used_at = 0 WHERE tenant = $1 AND used_at > 0;
