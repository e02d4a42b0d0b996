-- In the other databases this number drops the index of steps by when they were committed, which costs each step something
-- there. The summary here does not; the number is kept so that all three count alike.
SELECT 0;
