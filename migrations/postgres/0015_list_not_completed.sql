-- The index over sends that did not end well had their status in its key, and each claim changes a
-- status: Postgres then writes a new entry into every index of the table, at each start of a send. A reason
-- is written once, with the end. Both databases have the same index.
DROP INDEX sends_not_completed;
CREATE INDEX sends_not_completed ON sends (tenant, send_id) WHERE stop_reason <> 'end';
