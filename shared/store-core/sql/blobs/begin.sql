-- Begins a blob, or restarts its grace period if it exists and is not marked. Index: the primary
-- key. The media type of stored bytes stays: others refer to them.
INSERT INTO blobs (tenant, sha256, generation, state, media_type, bytes, created_at, used_at)
VALUES ($1, $2, $3, 0, $4, $5, $6, $6)
ON CONFLICT (tenant, sha256) DO UPDATE SET
    used_at = CASE WHEN blobs.state <> 2 THEN excluded.used_at ELSE blobs.used_at END,
    media_type = CASE WHEN blobs.state = 0 THEN excluded.media_type ELSE blobs.media_type END;
