-- The mounted skills that were left out, by folder.
SELECT folder, faults, seen_at FROM skill_faults WHERE tenant = $1 ORDER BY folder LIMIT 1000;
