-- The last number of the page of messages after $3, and how many messages it has, at most $4.
SELECT count(*) AS count, max(seq) AS last_seq FROM (
    SELECT seq FROM messages
    WHERE tenant = $1 AND session_id = $2 AND seq > $3
    ORDER BY seq
    LIMIT $4
) AS page;
