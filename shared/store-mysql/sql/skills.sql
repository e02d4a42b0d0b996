-- What MySQL says differently about skills.

-- name: skills/lock
-- Nobody else publishes or removes a skill of this name until the transaction ends.
INSERT INTO skills (tenant, name, hash, source, listed, updated_at) VALUES ($1, $2, $3, $4, 0, $5)
ON DUPLICATE KEY UPDATE name = VALUES(name);

-- name: skills/note_broken
-- Notes what is wrong with a mounted skill.
INSERT INTO skill_faults (tenant, folder, faults, seen_at) VALUES ($1, $2, $3, $4)
ON DUPLICATE KEY UPDATE faults = VALUES(faults), seen_at = VALUES(seen_at);
