-- Where the page of messages behind $3 ends, and how many they are, at most $4.
SELECT count(*) AS count, max(seq) AS last_seq FROM (
    SELECT seq FROM messages
    WHERE tenant = $1 AND session_id = $2 AND seq > $3
    ORDER BY seq
    LIMIT $4
) AS page;
