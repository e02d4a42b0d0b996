-- What tools asked people while their calls were made, with the answers: JSON; null while a call has asked nothing.
ALTER TABLE tool_calls ADD COLUMN asked TEXT;
