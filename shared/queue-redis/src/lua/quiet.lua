-- Before a worker waits at the bell: tokens for jobs that others have taken are removed.
-- KEYS: active list, bell
-- Returns how many jobs wait.
local waiting = redis.call('LLEN', KEYS[1])
if waiting == 0 then
    redis.call('DEL', KEYS[2])
end
return waiting
