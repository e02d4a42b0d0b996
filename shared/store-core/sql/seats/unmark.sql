-- Records that the agent $2 of the tenant $1 has no limit any more. By the primary key.
UPDATE seats SET agent = '' WHERE tenant = $1 AND agent = $2;
