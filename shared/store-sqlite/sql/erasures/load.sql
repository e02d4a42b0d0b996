-- What is known of a deleted session.
SELECT deleted_at, seq, send_id FROM erasures WHERE tenant = $1 AND session_id = $2;
