-- The workers that have not said for long that they live.
-- KEYS: workers set
-- ARGV: seconds of silence, most names to return
local now = tonumber(redis.call('TIME')[1])
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[1]), 'LIMIT', 0, ARGV[2])
