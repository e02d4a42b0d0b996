-- The limits of the agent $2 of the tenant $1, if it has any. By the primary key.
SELECT limits FROM agents_named WHERE tenant = $1 AND name = $2 AND limits IS NOT NULL;
