-- KEYS: snapshot hash, events stream. ARGV: epoch, state (JSON), ttl in ms.
-- Returns {"ok", next seq} or {"stale", stored epoch}.
local stored = redis.call('HMGET', KEYS[1], 'epoch', 'seq', 'ended')
local epoch = tonumber(ARGV[1])
if stored[1] and tonumber(stored[1]) > epoch then
  return {'stale', stored[1]}
end
if not stored[1] then
  redis.call('DEL', KEYS[2]) -- events without their snapshot can't be continued
end
local last = tonumber(stored[2] or '-1')
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'seq', string.format('%d', last))
if not stored[3] then -- the snapshot of a stream that has ended is final
  redis.call('HSET', KEYS[1], 'state', ARGV[2], 'state_seq', string.format('%d', last))
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return {'ok', string.format('%d', last + 1)}
