-- Puts jobs at the end of a lane in the form that apalis fetches them in, unless the lane is full.
-- Straight into the active list: through the scheduled set, as apalis' own push does it, a worker
-- whose clock is behind the pusher's would not see the job yet.
-- Rings for them: a token each, but no more tokens than jobs that wait.
-- KEYS: active list, scheduled set, data hash, prefix of the meta hashes, bell, workers set, and that of the workers
--   that have to be as many, for a line that not every release knows
-- ARGV: cap, seconds of silence after which a worker is not there any more, or 0 to push whoever is there, then
--   id and job of each
-- Returns the lane's length, -1 when it was full, or -2 when not all workers take from it. What waits in a line that
--   nobody takes from is forgotten, as the sweep brings it again.
local cap, silence = tonumber(ARGV[1]), tonumber(ARGV[2])
if silence > 0 then
    local since = tonumber(redis.call('TIME')[1]) - silence
    local takers = redis.call('ZCOUNT', KEYS[6], since, '+inf')
    if takers == 0 then
        for _, id in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
            redis.call('DEL', KEYS[4] .. ':' .. id)
            redis.call('HDEL', KEYS[3], id)
        end
        redis.call('DEL', KEYS[1], KEYS[5])
    end
    if takers == 0 or takers < redis.call('ZCOUNT', KEYS[7], since, '+inf') then
        return -2
    end
end
local depth = redis.call('LLEN', KEYS[1]) + redis.call('ZCARD', KEYS[2])
if depth >= cap then
    return -1
end
local ids, data = {}, {}
for i = 3, #ARGV, 2 do
    ids[#ids + 1] = ARGV[i]
    data[#data + 1] = ARGV[i]
    data[#data + 1] = ARGV[i + 1]
    redis.call('HSET', KEYS[4] .. ':' .. ARGV[i],
        'attempts', 0, 'max_attempts', 1, 'status', 'Pending')
end
redis.call('HSET', KEYS[3], unpack(data))
redis.call('RPUSH', KEYS[1], unpack(ids))
local tokens = {}
for _ = 1, math.min(#ids, depth + #ids - redis.call('LLEN', KEYS[5])) do
    tokens[#tokens + 1] = '1'
end
if #tokens > 0 then
    redis.call('RPUSH', KEYS[5], unpack(tokens))
end
return depth + #ids
