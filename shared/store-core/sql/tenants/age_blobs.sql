-- Ages the blobs of the tenant $1, which nothing holds any more, so that they are removed.
UPDATE blobs SET used_at = 0 WHERE tenant = $1 AND used_at > 0;
