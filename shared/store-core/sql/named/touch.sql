-- Records that an agent's aliases have changed.
UPDATE agents_named SET updated_at = $3 WHERE tenant = $1 AND name = $2;
