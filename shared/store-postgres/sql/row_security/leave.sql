-- Returns the connection to the program's own role.
SELECT set_config('role', 'none', FALSE) AS role, set_config('mainspring.tenant', '', FALSE) AS tenant
