-- From here on the connection sees only the rows of one tenant.
SELECT set_config('mainspring.tenant', $1::integer::text, FALSE) AS tenant, set_config('role', 'mainspring_tenant', FALSE) AS role
