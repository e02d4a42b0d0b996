-- Removes the recorded faults of a mounted skill.
DELETE FROM skill_faults WHERE tenant = $1 AND folder = $2;
