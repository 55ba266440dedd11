-- The algorithms of headgate/limit/history.py, with the history of an identifier in one string value.
--
-- Results equal those of history.py bit for bit: the same sums in the same order, in doubles that travel as 8 bytes
-- (little-endian). The functions read no clock: each record carries the caller's time.
--
-- A value: the fingerprint of algorithm and rules (8 bytes), the latest hold (a double), and the history:
--   log       the timestamps in ascending order, the last `burst` of which count
--   gcra      one theoretical arrival time per rule
--   smockron  three numbers per rule: start, steps, expiry
-- A value with another fingerprint, or of another type, is no history.
--
-- Arguments of both functions: keys, one per record; algorithm; fingerprint; parameters; records, two doubles each.
-- Parameters: `longest`, the seconds that an instant may be ahead; `life`, the seconds that a value may live; then the
-- numbers of each rule. The reply has one double per record: the release, or -inf.

local HEADER = 16
local CLOCK_DIFFERENCE = 60 -- seconds; a value is kept for this long after its expiry, because clocks differ
local MAX_LIFE = 1e10 -- seconds; Redis rejects an expiry that is too far ahead
local TRIM_AT_LEAST = 8 -- timestamps that a log may have in excess, if a quarter of the burst is less
local ASAP = -1 / 0 -- minus infinity; the library math is not available while this code is loaded
local MICROSECOND = 0.001 -- in milliseconds, as smockron counts

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

-- The milliseconds that a value lives whose content has no effect from `expiry` on.
local function lifetime(expiry, now, life)
  local seconds = math.min(math.max(expiry - now, 0) + CLOCK_DIFFERENCE, life, MAX_LIFE)
  return math.ceil(seconds * 1000)
end

-- The value of `key` if it has this fingerprint; otherwise nil.
local function read(key, fingerprint)
  local value = redis.pcall('GET', key)
  if type(value) == 'string' and #value >= HEADER and value:sub(1, 8) == fingerprint then
    return value
  end
end

local function write(key, fingerprint, hold, history, milliseconds)
  redis.call('SET', key, fingerprint .. pack(hold) .. history, 'PX', milliseconds)
end

-- Each of the three functions below takes the parameters, and returns a function that records a request at `timestamp`
-- and returns the release.

local function gcra(longest, life, numbers)
  local rules = #numbers / 2
  return function(key, fingerprint, timestamp, now)
    local bound = now + longest
    local value = read(key, fingerprint)
    local hold = value and math.min(unpack_at(value, 9), bound) or ASAP
    local known = value and #value == HEADER + 8 * rules
    local release, expiry, history = ASAP, hold, {}
    for rule = 1, rules do
      local arrival = known and math.min(unpack_at(value, HEADER + 8 * rule - 7), bound) or ASAP
      arrival = advance(math.max(arrival, timestamp), numbers[2 * rule - 1])
      history[rule] = pack(arrival)
      release = math.max(release, advance(arrival, numbers[2 * rule]))
      expiry = math.max(expiry, arrival)
    end
    if release > now then
      hold = math.min(math.max(hold, release), bound)
    end
    write(key, fingerprint, hold, table.concat(history), lifetime(expiry, now, life))
    return hold
  end
end

-- It counts in milliseconds: so do the two instants of a record.
local function smockron(longest, life, numbers)
  local rules = #numbers / 4
  return function(key, fingerprint, timestamp, clock)
    local bound = clock + longest * 1000
    local value = read(key, fingerprint)
    local hold = value and math.min(unpack_at(value, 9), bound / 1000) or ASAP
    local known = value and #value == HEADER + 24 * rules
    local arrived = math.max(timestamp, clock)
    local slack = math.max(MICROSECOND, 4 * ulp(clock))
    local release, expiry, history = ASAP, hold, {}
    for rule = 1, rules do
      local interval, above, window, burst = unpack(numbers, 4 * rule - 3, 4 * rule)
      local start, steps, kept = ASAP, 0, ASAP
      if known then
        local ended
        start, steps, ended = struct.unpack('<ddd', value, HEADER + 24 * rule - 23)
        if ended + slack >= clock then
          kept = advance(start, steps * (steps > 0 and interval or above))
        end
      end
      if kept > bound then
        start, steps, kept = bound, 0, bound
      end
      if kept >= arrived - window then
        steps = steps + 1
      else
        start, steps = arrived, 1 - burst
      end
      local following = advance(start, steps * (steps > 0 and interval or above))
      history[rule] = struct.pack('<ddd', start, steps, arrived + window)
      if following > clock then
        release = math.max(release, following / 1000)
      end
      expiry = math.max(expiry, (arrived + window) / 1000)
    end
    hold = math.min(math.max(hold, release), bound / 1000)
    write(key, fingerprint, hold, table.concat(history), lifetime(expiry, clock / 1000, life))
    return hold
  end
end

-- A log may be long, so it is changed in place: a timestamp is appended or, out of order, inserted before the later ones;
-- the oldest are dropped many at a time.

local function position(index)
  return HEADER + 8 * (index - 1)
end

local function timestamp_at(key, index)
  return unpack_at(redis.call('GETRANGE', key, position(index), position(index) + 7), 1)
end

-- The number of timestamps and the hold of the log at `key`; nil if there is none.
local function open_log(key, fingerprint)
  local header = redis.pcall('GETRANGE', key, 0, HEADER - 1)
  if type(header) == 'string' and #header == HEADER and header:sub(1, 8) == fingerprint then
    return (redis.call('STRLEN', key) - HEADER) / 8, unpack_at(header, 9)
  end
end

-- Set the timestamps after `bound` to `bound`; they are the last ones.
local function limit_timestamps(key, count, bound)
  while count > 0 and timestamp_at(key, count) > bound do
    redis.call('SETRANGE', key, position(count), pack(bound))
    count = count - 1
  end
end

-- Insert a timestamp that is before the last of `count`; only the last `most` matter. Return their new number.
local function insert(key, count, most, timestamp)
  local low, high = math.max(1, count - most + 1), count
  if count >= most and timestamp <= timestamp_at(key, low) then
    return count
  end
  while low < high do -- the first that is later lies in low to high
    local middle = math.floor((low + high) / 2)
    if timestamp_at(key, middle) > timestamp then
      high = middle
    else
      low = middle + 1
    end
  end
  local later = redis.call('GETRANGE', key, position(low), -1)
  redis.call('SETRANGE', key, position(low), pack(timestamp) .. later)
  return count + 1
end

local function log(longest, life, numbers)
  local rules, most, widest = #numbers / 3, 0, 0
  for rule = 1, rules do
    most = math.max(most, numbers[3 * rule - 2])
    widest = math.max(widest, numbers[3 * rule - 1])
  end
  local excess = math.max(TRIM_AT_LEAST, math.floor(most / 4))

  return function(key, fingerprint, timestamp, now)
    local bound = now + longest
    local count, stored_hold = open_log(key, fingerprint)
    local last = timestamp
    if not count then
      count, stored_hold = 1, ASAP
      write(key, fingerprint, ASAP, pack(timestamp), lifetime(timestamp, now, life))
    else
      local latest = count > 0 and timestamp_at(key, count) or ASAP
      if latest > bound then
        limit_timestamps(key, count, bound)
        latest = bound
      end
      if timestamp >= latest then
        redis.call('APPEND', key, pack(timestamp))
        count = count + 1
      else
        count, last = insert(key, count, most, timestamp), latest
      end
    end
    local hold = math.min(stored_hold, bound)
    for rule = 1, rules do
      local burst, window, interval = unpack(numbers, 3 * rule - 2, 3 * rule)
      if count >= burst then
        local oldest = timestamp_at(key, count - burst + 1)
        if oldest > now - window and advance(oldest, window) > now then
          hold = math.max(hold, advance(now > last and now or last, interval))
        end
      end
    end
    hold = math.min(hold, bound)
    local milliseconds = lifetime(math.max(hold, advance(last, widest)), now, life)
    if count > most + excess then
      local kept = redis.call('GETRANGE', key, position(count - most + 1), -1)
      write(key, fingerprint, hold, kept, milliseconds)
    else
      if hold ~= stored_hold then
        redis.call('SETRANGE', key, 8, pack(hold))
      end
      redis.call('PEXPIRE', key, milliseconds)
    end
    return hold
  end
end

local ALGORITHMS = { log = log, gcra = gcra, smockron = smockron }

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
  local algorithm, fingerprint, parameters, records = unpack(args)
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
  local _, fingerprint, parameters, records = unpack(args)
  local longest, life = parse(parameters)
  local holds = {}
  for index, key in ipairs(keys) do
    local hold, now = struct.unpack('<dd', records, 16 * index - 15)
    local bound = now + longest
    hold = math.min(hold, bound)
    local header = redis.pcall('GETRANGE', key, 0, HEADER - 1)
    if type(header) == 'string' and #header == HEADER and header:sub(1, 8) == fingerprint then
      hold = math.max(hold, math.min(unpack_at(header, 9), bound))
      redis.call('SETRANGE', key, 8, pack(hold))
      redis.call('PEXPIRE', key, lifetime(hold, now, life), 'GT')
    else
      write(key, fingerprint, hold, '', lifetime(hold, now, life))
    end
    holds[index] = pack(hold)
  end
  return table.concat(holds)
end

redis.register_function('NAME_record', record)
redis.register_function('NAME_extend', extend)
