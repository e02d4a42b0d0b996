-- Whether the session has open sends with their place besides $3, by sends_open.
SELECT EXISTS (
    SELECT 1 FROM sends
    WHERE tenant = $1 AND session_id = $2 AND finished_at IS NULL AND position IS NOT NULL
      AND send_id <> $3
);
