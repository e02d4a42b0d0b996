-- Changes the cold row; metadata that is not given is kept.
UPDATE sessions SET metadata = coalesce($3, metadata), updated_at = $4
WHERE tenant = $1 AND session_id = $2;
