-- What is under way, for bounds over all runs of a tenant.
CREATE INDEX runs_open ON runs (tenant) WHERE finished_at IS NULL;
