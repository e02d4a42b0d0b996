-- What a session has spent, as JSON, where its agent has a budget: what its sends used and what is
-- set aside for their children. What a send itself set aside stands beside its sums, in usage.
ALTER TABLE session_hot ADD COLUMN spent LONGTEXT;
