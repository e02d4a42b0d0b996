-- Points an alias of an agent whose row is locked at a version.
INSERT INTO agent_aliases (tenant, name, alias, version) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant, name, alias) DO UPDATE SET version = excluded.version;
