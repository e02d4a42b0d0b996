-- Releases what a boot owns. Running sends count a model call that may have been started.
UPDATE sends SET attempts = attempts + 1
WHERE status = 'running' AND (tenant, session_id) IN (
    SELECT h.tenant, h.session_id FROM session_hot h
    WHERE h.ready_since IS NOT NULL AND h.owner_boot = $1
);
UPDATE session_hot SET owner_boot = NULL, token = NULL
WHERE ready_since IS NOT NULL AND owner_boot = $1;
