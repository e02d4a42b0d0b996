-- Forgets finished jobs: the entry that says so, the job and its meta hash, in one step, so that a
-- crash between them leaves nothing behind that nobody would find.
-- KEYS: done or dead set, data hash, prefix of the meta hashes
-- ARGV: most jobs to forget
-- Returns how many were forgotten.
local ids = redis.call('SPOP', KEYS[1], ARGV[1])
if #ids == 0 then
    return 0
end
local metas = {}
for i, id in ipairs(ids) do
    metas[i] = KEYS[3] .. ':' .. id
end
redis.call('HDEL', KEYS[2], unpack(ids))
redis.call('UNLINK', unpack(metas))
return #ids
