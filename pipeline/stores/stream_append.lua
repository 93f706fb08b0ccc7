-- KEYS: snapshot hash, events stream.
-- ARGV: epoch, seq, type, data (JSON), state (JSON, or '' for none), '1' for a terminal event or '',
--       ttl in ms, most events kept.
-- Returns {"ok"}, {"present"}, {"ended"}, {"stale", stored epoch} or {"gap", last seq}.
-- An entry's id is its seq + 1 (Redis has no id 0), so the stream itself can't hold a seq twice.
local stored = redis.call('HMGET', KEYS[1], 'epoch', 'seq', 'ended')
local epoch, seq = tonumber(ARGV[1]), tonumber(ARGV[2])
local stored_epoch, last = tonumber(stored[1] or '-1'), tonumber(stored[2] or '-1')

if stored_epoch > epoch then
  return {'stale', stored[1]}
end
if stored[3] then
  return {'ended'}
end
if stored_epoch == epoch and seq <= last then
  return {'present'}
end
if stored_epoch == epoch and seq > last + 1 then
  return {'gap', stored[2]}
end
if stored_epoch < epoch and seq ~= last + 1 then
  -- The stream was lost after this epoch began (an older epoch may have begun another since): go on from here.
  redis.call('DEL', KEYS[1], KEYS[2])
end
if not stored[1] then
  redis.call('DEL', KEYS[2])
end

local id = string.format('%d-0', seq + 1)
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[8], id, 'epoch', ARGV[1], 'type', ARGV[3], 'data', ARGV[4])
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'seq', ARGV[2])
if ARGV[5] ~= '' then
  redis.call('HSET', KEYS[1], 'state', ARGV[5], 'state_seq', ARGV[2])
end
if ARGV[6] ~= '' then
  redis.call('HSET', KEYS[1], 'ended', '1')
end
redis.call('PEXPIRE', KEYS[1], ARGV[7])
redis.call('PEXPIRE', KEYS[2], ARGV[7])
return {'ok'}
