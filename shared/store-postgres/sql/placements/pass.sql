-- What this transaction writes for tenants that are away is a move's.
SELECT set_config('mainspring.moves', 'on', TRUE) AS moves
