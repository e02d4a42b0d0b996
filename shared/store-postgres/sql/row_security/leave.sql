-- The connection is the program's again.
SELECT set_config('role', 'none', FALSE), set_config('mainspring.tenant', '', FALSE)
