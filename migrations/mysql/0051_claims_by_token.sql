-- Calls that someone has, by what it was claimed with; and of those that may have lapsed only those that nobody else may
-- make, since the others wait for the next program.
ALTER TABLE tool_calls
    ADD COLUMN held_with BINARY(16) AS (CASE WHEN waits_on = 'tool' THEN claim END) VIRTUAL,
    ADD COLUMN once_until BIGINT AS (CASE WHEN waits_on = 'tool' AND `repeat` = 'once' THEN claimed_until END) VIRTUAL,
    ADD KEY tool_calls_held (tenant, held_with),
    ADD KEY tool_calls_lapsing (once_until);
