-- Calls that someone has, by what it was claimed with; and of those that may have lapsed only those that nobody else may
-- make, since the others wait for the next program.
CREATE INDEX tool_calls_held ON tool_calls (tenant, claim) WHERE waits_on = 'tool' AND claim IS NOT NULL;
CREATE INDEX tool_calls_lapsing ON tool_calls (claimed_until) WHERE waits_on = 'tool' AND repeat = 'once' AND claimed_until IS NOT NULL;
DROP INDEX tool_calls_claimed;
