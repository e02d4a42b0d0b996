-- A list's counters; no row if nothing was written to it.
SELECT next_id, version FROM lists WHERE tenant = $1 AND list = $2;
