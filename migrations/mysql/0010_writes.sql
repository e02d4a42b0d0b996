-- Writes under a session's last grant: with the token the fence that keeps one from taking effect
-- twice.
ALTER TABLE session_hot ADD COLUMN writes BIGINT NOT NULL DEFAULT 0;
