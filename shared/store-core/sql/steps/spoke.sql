-- Whether a send has messages in the transcript: whether a step of it, from the one that accepted
-- it ($4) on, wrote any.
SELECT EXISTS (
    SELECT 1 FROM steps
    WHERE tenant = $1 AND session_id = $2 AND n >= $4 AND send_id = $3
      AND refs ->> 'first_seq' IS NOT NULL
);
