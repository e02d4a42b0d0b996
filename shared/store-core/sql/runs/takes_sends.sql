-- Whether a session accepts sends; this does not change until the transaction ends.
SELECT count(*) > 0 FROM session_hot
WHERE tenant = $1 AND session_id = $2 AND lifecycle = 0
{lock};
