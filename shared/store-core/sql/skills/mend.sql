-- Forgets what was wrong with a mounted skill.
DELETE FROM skill_faults WHERE tenant = $1 AND folder = $2;
