-- Published agents can have a limit of sends in flight, too (agents_named.limits). The seats of their tenant are then taken
-- under the same row as if the tenant had such a limit, with nulls where it has none.
--   agents  whether agents of the tenant have such limits
ALTER TABLE seat_limits ADD COLUMN agents INTEGER NOT NULL DEFAULT 0;
-- What a session with a seat runs, or one that waits is to run: its first open send, and the version of the session's agent
-- that this is pinned to or would be. A row that notes none is of a release that counted no agents.
--   agent  the published agent, where it has such a limit; else an empty text
ALTER TABLE seats ADD COLUMN agent TEXT NOT NULL DEFAULT '';
ALTER TABLE seats ADD COLUMN send_id BLOB;
ALTER TABLE seats ADD COLUMN agent_version INTEGER;
CREATE INDEX seats_agents ON seats (tenant, agent, leaf, waits_since, session_id) WHERE waits_since IS NOT NULL;
