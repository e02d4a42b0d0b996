-- What is under way, for bounds over all runs of a tenant: finished_at is null in it.
CREATE INDEX runs_open ON runs (tenant, finished_at);
