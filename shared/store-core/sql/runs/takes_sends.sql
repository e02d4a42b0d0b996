-- Whether a session takes sends.
SELECT EXISTS (
    SELECT 1 FROM session_hot WHERE tenant = $1 AND session_id = $2 AND lifecycle = 0
);
