-- Sets what an agent may use from $4 on. By the primary key.
UPDATE agents_named SET limits = $3, updated_at = $4 WHERE tenant = $1 AND name = $2;
