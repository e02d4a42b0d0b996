-- Ends a worker that will not come back: what it held is for others, nothing of it stays.
-- A job without its data is dropped, for it would end every worker that fetches it.
-- KEYS: the worker's inflight set, active list, data hash, workers set, the worker's metadata,
--   bell
-- ARGV: the worker's name, most jobs to return
-- Returns how many jobs were returned.
local ids = redis.call('SPOP', KEYS[1], ARGV[2])
local returned = 0
for _, id in ipairs(ids) do
    if redis.call('HEXISTS', KEYS[3], id) == 1 then
        redis.call('RPUSH', KEYS[2], id)
        redis.call('RPUSH', KEYS[6], '1')
        returned = returned + 1
    end
end
redis.call('UNLINK', KEYS[1], KEYS[5])
redis.call('ZREM', KEYS[4], ARGV[1])
return returned
