-- An index of steps by when they were committed costs each step something here, and only a journal asks it: it is made
-- again when one is opened.
DROP INDEX steps_at;
