-- The algorithms of headgate/limit/history.py, with the history of an identifier in one string value.
--
-- Results equal those of history.py bit for bit: the same sums in the same order, in doubles that travel as 8 bytes
-- (little-endian). The script reads no clock: each record carries the caller's time.
--
-- A value consists of doubles: the fingerprint of algorithm and rules, the latest hold, the instant until which the value
-- is kept at least, and the history:
--   log   the timestamps in ascending order, the last `burst` of which count
--   gcra  one theoretical arrival time per rule
-- A value with another fingerprint, or of another type, counts as missing.
--
-- Arguments: keys, one per record; `record`, `extend` or `probe`; algorithm; fingerprint; parameters; records, two doubles each.
-- Parameters: `longest`, the seconds that an instant may be ahead; `life`, the seconds that a value may live; then the
-- numbers of each rule. The reply has one double per record: the release, or minus infinity.
--
-- Calls of the server take most of the time (SET with PX takes four times as long as SETRANGE), so there are few.

local HEADER = 24
local GRACE = 60 -- seconds that a value is kept after its expiry: clocks differ, and not every record extends its life
local MAX_LIFE = 1e10 -- seconds; Redis rejects an expiry that is too far ahead
local READ_WHOLE = 128 -- the largest burst whose log is read with one call
local TRIM_AT_LEAST = 8 -- timestamps that a log may have in excess, if a quarter of the burst is less
local ASAP = -1 / 0 -- minus infinity

-- These are faster than math.min and math.max, which are calls of the library.
local function smaller(one, other)
  return one < other and one or other
end

local function larger(one, other)
  return one > other and one or other
end

local function pack(number)
  return struct.pack('<d', number)
end

local function unpack_at(value, position)
  return (struct.unpack('<d', value, position))
end

-- The unit in the last place of `number`, as math.ulp in Python.
local function ulp(number)
  local _, exponent = math.frexp(number)
  return math.ldexp(1, exponent - 53)
end

-- The largest double below `number`, which is finite, normal and not zero.
local function next_below(number)
  local mantissa, exponent = math.frexp(number)
  return number - math.ldexp(1, exponent - (mantissa == 0.5 and 54 or 53))
end

-- The sum, rounded down; see headgate/release.py.
local function advance(instant, seconds)
  local total = instant + seconds
  if total - instant > seconds or total - seconds > instant then
    return next_below(total)
  end
  return total
end

-- The value of `key`, its hold and the instant until which it is kept; nil if it is missing.
local function read(key, fingerprint)
  local value = redis.pcall('GET', key)
  if type(value) == 'string' and #value >= HEADER then
    local found, hold, kept = struct.unpack('<ddd', value)
    if found == fingerprint then
      return value, hold, kept
    end
  end
end

-- The instant until which a value is kept whose content has no effect from `expiry` on, and the milliseconds that it
-- has to live from now on; no milliseconds if it lives long enough.
local function extension(expiry, kept, now, life)
  if kept - GRACE / 2 <= expiry and expiry <= kept + GRACE / 2 then
    return kept
  end
  local seconds = smaller(smaller(larger(expiry - now, 0) + GRACE, life), MAX_LIFE)
  return now + seconds - GRACE, math.ceil(seconds * 1000)
end

-- Write a new value.
local function create(key, fingerprint, hold, history, expiry, now, life)
  local kept, milliseconds = extension(expiry, ASAP, now, life)
  redis.call('SET', key, struct.pack('<ddd', fingerprint, hold, kept) .. history)
  redis.call('PEXPIRE', key, milliseconds)
end

-- Change the hold of a value and what follows it.
local function update(key, hold, history, kept, expiry, now, life)
  local milliseconds
  kept, milliseconds = extension(expiry, kept, now, life)
  redis.call('SETRANGE', key, 8, struct.pack('<dd', hold, kept) .. history)
  if milliseconds then
    redis.call('PEXPIRE', key, milliseconds)
  end
end

-- Each of the two functions below takes the parameters, and returns a function that records a request at `timestamp`
-- and returns the release.

local function gcra(longest, life, numbers)
  local rules = #numbers / 2
  local size = HEADER + 8 * rules
  return function(key, fingerprint, timestamp, now)
    local bound = now + longest
    local value, hold, kept = read(key, fingerprint)
    local known = value and #value == size
    hold = value and smaller(hold, bound) or ASAP
    local release, expiry, history = ASAP, hold, ''
    for rule = 1, rules do
      local arrival = known and smaller(unpack_at(value, HEADER + 8 * rule - 7), bound) or ASAP
      arrival = advance(larger(arrival, timestamp), numbers[2 * rule - 1])
      history = history .. pack(arrival)
      release = larger(release, advance(arrival, numbers[2 * rule]))
      expiry = larger(expiry, arrival)
    end
    if release > now then
      hold = smaller(larger(hold, release), bound)
    end
    if known then
      update(key, hold, history, kept, expiry, now, life)
    else
      create(key, fingerprint, hold, history, expiry, now, life)
    end
    return hold
  end
end

-- A log may be long, so it is changed in place: a timestamp is appended or, out of order, inserted before the later ones;
-- the oldest are dropped many at a time. In memory it is a table: key, number of timestamps, the value if it was read
-- whole, and a timestamp that was appended since.

local function position(index)
  return HEADER + 8 * (index - 1)
end

local function timestamp_at(entries, index)
  if index == entries.count and entries.appended then
    return entries.appended
  end
  if entries.value then
    return unpack_at(entries.value, position(index) + 1)
  end
  return unpack_at(redis.call('GETRANGE', entries.key, position(index), position(index) + 7), 1)
end

-- The log at `key`, its hold and the instant until which it is kept; nil if it is missing.
local function open_log(key, fingerprint, whole)
  if whole then
    local value, hold, kept = read(key, fingerprint)
    if value then
      return { key = key, count = (#value - HEADER) / 8, value = value }, hold, kept
    end
    return
  end
  local header = redis.pcall('GETRANGE', key, 0, HEADER - 1)
  if type(header) == 'string' and #header == HEADER then
    local found, hold, kept = struct.unpack('<ddd', header)
    if found == fingerprint then
      return { key = key, count = (redis.call('STRLEN', key) - HEADER) / 8 }, hold, kept
    end
  end
end

local function append(entries, timestamp)
  redis.call('APPEND', entries.key, pack(timestamp))
  entries.count = entries.count + 1
  entries.appended = timestamp
end

-- Replace the timestamps from `index` on.
local function replace(entries, index, packed)
  redis.call('SETRANGE', entries.key, position(index), packed)
  if entries.value then
    entries.value = entries.value:sub(1, position(index)) .. packed
  end
  entries.count = index - 1 + #packed / 8
end

-- The packed timestamps from `index` on.
local function tail(entries, index)
  if entries.value then
    return entries.value:sub(position(index) + 1) .. (entries.appended and pack(entries.appended) or '')
  end
  return redis.call('GETRANGE', entries.key, position(index), -1)
end

-- Set the timestamps after `bound` to `bound`; they are the last ones.
local function limit_timestamps(entries, bound)
  local first = entries.count
  while first > 1 and timestamp_at(entries, first - 1) > bound do
    first = first - 1
  end
  replace(entries, first, string.rep(pack(bound), entries.count - first + 1))
end

-- Insert a timestamp that is before the last one; only the last `most` matter.
local function insert(entries, most, timestamp)
  local low, high = larger(1, entries.count - most + 1), entries.count
  if entries.count >= most and timestamp <= timestamp_at(entries, low) then
    return
  end
  while low < high do -- the first that is later lies in low to high
    local middle = math.floor((low + high) / 2)
    if timestamp_at(entries, middle) > timestamp then
      high = middle
    else
      low = middle + 1
    end
  end
  replace(entries, low, pack(timestamp) .. tail(entries, low))
end

local function log(longest, life, numbers)
  local rules, most, widest = #numbers / 3, 0, 0
  for rule = 1, rules do
    most = larger(most, numbers[3 * rule - 2])
    widest = larger(widest, numbers[3 * rule - 1])
  end
  local excess = larger(TRIM_AT_LEAST, math.floor(most / 4))

  -- The hold after a record at `now`, at least `hold`.
  local function evaluate(entries, last, hold, now)
    for rule = 1, rules do
      local burst, window, interval = numbers[3 * rule - 2], numbers[3 * rule - 1], numbers[3 * rule]
      if entries.count >= burst then
        local oldest = timestamp_at(entries, entries.count - burst + 1)
        if oldest > now - window and advance(oldest, window) > now then
          hold = larger(hold, advance(now > last and now or last, interval))
        end
      end
    end
    return hold
  end

  return function(key, fingerprint, timestamp, now)
    local bound = now + longest
    local entries, stored_hold, kept = open_log(key, fingerprint, most <= READ_WHOLE)
    if not entries then
      local hold = evaluate({ count = 1, appended = timestamp }, timestamp, ASAP, now)
      hold = smaller(hold, bound)
      create(key, fingerprint, hold, pack(timestamp), larger(hold, advance(timestamp, widest)), now, life)
      return hold
    end
    local last = entries.count > 0 and timestamp_at(entries, entries.count) or ASAP
    if last > bound then
      limit_timestamps(entries, bound)
      last = bound
    end
    if timestamp >= last then
      append(entries, timestamp)
      last = timestamp
    else
      insert(entries, most, timestamp)
    end
    local hold = smaller(evaluate(entries, last, smaller(stored_hold, bound), now), bound)
    local expiry = larger(hold, advance(last, widest))
    if entries.count > most + excess then
      create(key, fingerprint, hold, tail(entries, entries.count - most + 1), expiry, now, life)
    elseif hold ~= stored_hold or extension(expiry, kept, now, life) ~= kept then
      update(key, hold, '', kept, expiry, now, life)
    end
    return hold
  end
end

local ALGORITHMS = { log = log, gcra = gcra }

-- Read the parameters; return `longest`, `life` and the numbers of the rules.
local function parse(parameters)
  local numbers = {}
  for index = 1, #parameters / 8 - 2 do
    numbers[index] = unpack_at(parameters, 8 * index + 9)
  end
  return unpack_at(parameters, 1), unpack_at(parameters, 9), numbers
end

-- Record requests: each record is a timestamp and the time of its arrival. Return the release of each identifier, which
-- is at least its stored hold.
local function record(keys, args)
  local _, algorithm, packed, parameters, records = unpack(args)
  local fingerprint = unpack_at(packed, 1)
  local record_one = ALGORITHMS[algorithm](parse(parameters))
  local releases = {}
  for index, key in ipairs(keys) do
    local timestamp, now = struct.unpack('<dd', records, 16 * index - 15)
    releases[index] = pack(record_one(key, fingerprint, timestamp, now))
  end
  return table.concat(releases)
end

-- Extend the stored holds: each record is a release and the present time, both in seconds. Return the holds in force.
local function extend(keys, args)
  local _, _, packed, parameters, records = unpack(args)
  local fingerprint = unpack_at(packed, 1)
  local longest, life = parse(parameters)
  local holds = {}
  for index, key in ipairs(keys) do
    local hold, now = struct.unpack('<dd', records, 16 * index - 15)
    local bound = now + longest
    hold = smaller(hold, bound)
    local entries, stored_hold, kept = open_log(key, fingerprint, false)
    if entries then
      hold = larger(hold, smaller(stored_hold, bound))
      update(key, hold, '', kept, hold, now, life)
    else
      create(key, fingerprint, hold, '', hold, now, life)
    end
    holds[index] = pack(hold)
  end
  return table.concat(holds)
end

-- Fail where nothing can be written, as on a replica.
local function probe(keys)
  redis.call('SET', keys[1], '')
  redis.call('PEXPIRE', keys[1], 1000)
  return ''
end

local OPERATIONS = { record = record, extend = extend, probe = probe }
return OPERATIONS[ARGV[1]](KEYS, ARGV)
