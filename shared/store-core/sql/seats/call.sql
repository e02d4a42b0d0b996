-- Records that the session $2 was called; it counts as ready from now on. By the primary key.
UPDATE seats SET called_at = coalesce(called_at, $3)
WHERE tenant = $1 AND session_id = $2 AND waits_since IS NOT NULL;
