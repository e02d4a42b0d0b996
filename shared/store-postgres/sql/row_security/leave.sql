-- The connection is the program's again.
SELECT set_config('role', 'none', FALSE) AS role, set_config('mainspring.tenant', '', FALSE) AS tenant
