-- Does what all work on the queue needs: a script may write below the prefix, to the registry of apalis, and publish.
-- Leaves nothing.
-- KEYS: a key of this installation, the registry
-- ARGV: a channel that nobody listens to
redis.call('SET', KEYS[1], '1')
redis.call('DEL', KEYS[1])
redis.call('ZADD', KEYS[2], 'XX', 0, '')
return redis.call('PUBLISH', ARGV[1], '')
