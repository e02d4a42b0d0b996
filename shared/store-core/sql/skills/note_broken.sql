-- Records the faults of a mounted skill.
INSERT INTO skill_faults (tenant, folder, faults, seen_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant, folder) DO UPDATE SET faults = excluded.faults, seen_at = excluded.seen_at;
