-- Marks what this transaction writes for absent tenants as part of a move.
SELECT set_config('mainspring.moves', 'on', TRUE) AS moves
