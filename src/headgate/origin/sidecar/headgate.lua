-- nginx as a gatekeeper: accepts, delays or rejects each request by the holds in a shared dictionary.
--
--   init_by_lua          require("headgate").configure({ dictionary = "headgate", socket = "/run/headgate.sock" })
--   init_worker_by_lua   require("headgate").start()
--   access_by_lua        require("headgate").limit("api")
--
-- A decision needs no other process: it reads one entry of the dictionary. Every worker has a connection to
-- `headgate sidecar`, sends its verdicts, and receives the settings; one worker receives the holds, for all of them.
-- Without a sidecar requests are accepted, except those of identifiers that are still held.
--
-- Both directions of the connection are a sequence of records (see nginx_lua_wire.py):
--   KIND NUMBER NUMBER SIZE BYTES LF

local bit = require "bit"
local ffi = require "ffi"
local semaphore = require "ngx.semaphore"
local get_request = require("resty.core.base").get_request

local ngx = ngx
local ceil, floor, max = math.ceil, math.floor, math.max
local concat = table.concat
local byte, find, format, gsub, lower, match, sub =
    string.byte, string.find, string.format, string.gsub, string.lower, string.match, string.sub
local is_internal, start_time, now_seconds = ngx.req.is_internal, ngx.req.start_time, ngx.now

local VERSION = 1
local BATCH_DELAY = 0.002 -- seconds that the first verdict of a batch waits for more
local RECONNECT_DELAY = 0.5
local ENOENT = 2
local TIMEOUT = 4000 -- milliseconds; the sidecar sends a record every second
local MAX_QUEUED = 10000 -- verdicts of one worker
local MAX_SENT = 1000 -- verdicts in one call of send
local MAX_RECEIVED = 65536
local MAX_RECORD = 1048576 -- bytes, the largest record is that of the settings
local MAX_IDENTIFIER = 255
local MAX_CACHED = 16384
local SECONDS_MARK = "\1" -- where a rejection has the seconds to wait

-- Keys of the dictionary that are not holds. The key of a hold is DOMAIN NUL IDENTIFIER.
local INSTANCE, SETTINGS = "instance", "settings"

local dictionary, socket_path, own_identify

---------------------------------------------------------------------------------------------------------------------
-- Settings, which the sidecar sends. They are kept in the dictionary for workers that start while there is no sidecar.

local max_delay, max_delayed, max_hold, ipv6_prefix = 5, 1024, 3600, 64
local spacing = {} -- seconds between two delayed requests of an identifier, by domain
local rejections = {} -- by domain: { text = response, problem = response }
local identify

---------------------------------------------------------------------------------------------------------------------
-- Identifiers: the same bytes as those of `headgate serve`, so that both share one limit for each client.

local address_cache, cached = {}, 0

local function ipv6_network(address)
    local groups, zeros, best, best_zeros = {}, 0, 0, 1
    for index = 1, 8 do
        local kept = max(0, 16 - max(0, index * 16 - ipv6_prefix)) -- bits of this group that belong to the network
        local high, low = byte(address, index * 2 - 1, index * 2)
        local group = bit.band(high * 256 + low, 65536 - 2 ^ (16 - kept))
        groups[index] = format("%x", group)
        zeros = group == 0 and zeros + 1 or 0
        if zeros > best_zeros then
            best, best_zeros = index, zeros
        end
    end
    local text = concat(groups, ":")
    if best > 0 then -- RFC 5952: the first of the longest runs of zeros is replaced by "::"
        text = concat(groups, ":", 1, best - best_zeros) .. "::" .. concat(groups, ":", best + 1)
    end
    return ipv6_prefix < 128 and text .. "/" .. ipv6_prefix or text
end

local function uncached_address(address)
    if #address ~= 16 then
        return "unknown" -- a unix socket
    elseif sub(address, 1, 12) == "\0\0\0\0\0\0\0\0\0\0\255\255" then
        return format("%d.%d.%d.%d", byte(address, 13, 16))
    end
    return ipv6_network(address)
end

local function by_address()
    local address = ngx.var.remote_addr
    if not find(address, ":", 1, true) then
        return address
    end
    local known = address_cache[address]
    if not known then
        if cached >= MAX_CACHED then
            address_cache, cached = {}, 0
        end
        known = uncached_address(ngx.var.binary_remote_addr)
        address_cache[address], cached = known, cached + 1
    end
    return known
end

ffi.cdef "unsigned char *SHA256(const unsigned char *data, size_t size, unsigned char *digest);"

local function short_identifier(value)
    if #value <= MAX_IDENTIFIER then
        return value
    end
    local found, digest = pcall(function() -- OpenSSL's, which nginx has if it was built with TLS
        local buffer = ffi.new("unsigned char[32]")
        ffi.C.SHA256(value, #value, buffer)
        return ffi.string(buffer, 32)
    end)
    if not found then
        return nil
    end
    return "sha256:" .. gsub(digest, ".", function(one) return format("%02x", byte(one)) end)
end

local function by_header(name)
    local variable = "http_" .. gsub(lower(name), "-", "_")
    local field = lower(name)
    return function()
        if not ngx.var[variable] then
            return by_address()
        end
        -- The variable has the first line only. A repeated field is no identifier: see docs/how-to/limit-in-nginx.md.
        local value = ngx.req.get_headers(0)[field]
        value = type(value) == "string" and match(value, "^%s*(.-)%s*$") or ""
        return value ~= "" and short_identifier(value) or by_address()
    end
end

local function parse_identify(text)
    local name = match(text, "^header:(.+)$")
    return name and by_header(name) or by_address
end

---------------------------------------------------------------------------------------------------------------------
-- Accounting: verdicts wait here until the connection of this worker sends them. Without a sidecar the first
-- MAX_QUEUED are kept; the others are counted.

local queue, queued, dropped, evicted = {}, 0, 0, 0
local wake, sender_waits = nil, false
local last_instant, last_milliseconds

local function milliseconds(instant)
    if instant ~= last_instant then
        last_instant, last_milliseconds = instant, format("%.0f", instant * 1000)
    end
    return last_milliseconds
end

local function account(verdict, received, release, key)
    if queued >= MAX_QUEUED then
        dropped = dropped + 1
        return
    end
    queued = queued + 1
    queue[queued] = verdict .. milliseconds(received) .. release .. #key .. " " .. key .. "\n"
    if sender_waits then
        sender_waits = false
        wake:post(1)
    end
end

---------------------------------------------------------------------------------------------------------------------
-- Slots of delayed requests, counted by the second in which they end: a slot that is not freed ends by itself.

local slots, taken, oldest_slot = {}, 0, 0

local function take_slot(now, release)
    local second = floor(now)
    if taken == 0 then
        oldest_slot = second
    end
    while oldest_slot < second do
        taken = taken - (slots[oldest_slot] or 0)
        slots[oldest_slot] = nil
        oldest_slot = oldest_slot + 1
    end
    if taken >= ceil(max_delayed / ngx.worker.count()) then
        return nil
    end
    second = floor(release)
    slots[second] = (slots[second] or 0) + 1
    taken = taken + 1
    return second
end

local function free_slot(second)
    if (slots[second] or 0) > 0 then
        slots[second] = slots[second] - 1
        taken = taken - 1
    end
end

---------------------------------------------------------------------------------------------------------------------
-- Rejections

-- The quality that an Accept field gives to a media type: that of the most specific range.
local function quality(accept, type, subtype)
    local best, value = 0, 0
    for range in string.gmatch(lower(accept), "[^,]+") do
        local name = match(range, "^%s*([^;%s]+)")
        local specific = name == type .. "/" .. subtype and 3 or name == type .. "/*" and 2 or name == "*/*" and 1 or 0
        if specific > best then
            best, value = specific, tonumber(match(range, ";%s*q=([%d.]+)")) or 1
        end
    end
    return value
end

local function prefers_problem(accept)
    if not accept or not find(accept, "application/", 1, true) then
        return false
    end
    local subtype = find(accept, "application/problem+json", 1, true) and "problem+json" or "json"
    return quality(accept, "application", subtype) > quality(accept, "text", "plain")
end

local function reject(domain, now, release)
    local forms = rejections[domain] or {}
    local form = prefers_problem(ngx.var.http_accept) and forms.problem or forms.text
    local seconds = format("%.0f", max(1, ceil(release - now)))
    ngx.req.discard_body() -- otherwise the rest of the body would be taken for the next request
    if not form then
        ngx.header["Retry-After"] = seconds
        return ngx.exit(503)
    end
    ngx.status = form.status
    for index = 1, #form.fields, 2 do
        ngx.header[form.fields[index]] = gsub(form.fields[index + 1], SECONDS_MARK, seconds)
    end
    local body = gsub(form.body, SECONDS_MARK, seconds)
    ngx.header["Content-Length"] = #body
    ngx.print(body)
    return ngx.exit(form.status)
end

---------------------------------------------------------------------------------------------------------------------
-- Decisions

-- Wait for the release of a delayed request. Both clocks are read in whole milliseconds, so one is added.
local function delay(now, release, slot)
    -- Runs if the client disconnects, with `lua_check_client_abort on`.
    ngx.on_abort(function()
        free_slot(slot)
        ngx.exit(499)
    end)
    ngx.sleep((ceil((release - now) * 1000) + 1) / 1000)
    free_slot(slot)
end

-- Move the hold forward by one interval, so that delayed requests do not all go at one instant. Returns the release of
-- this request; the addition is atomic, so each request of all workers has its own.
local function take_release(domain, key, now, release)
    local interval = spacing[domain]
    local following = interval and dictionary:incr(key, interval)
    if not following then
        return release
    end
    dictionary:expire(key, following - now + 1)
    return following - interval
end

local function delay_or_reject(domain, key, now, release)
    if release - now > max_hold then -- the clock was set back, or the hold is not from the sidecar
        release = now + max_hold
        dictionary:set(key, release, max_hold + 1)
    end
    local slot = release - now <= max_delay and take_slot(now, release)
    if not slot then
        account("rejected ", now, " 0 ", key)
        return reject(domain, now, release)
    end
    release = take_release(domain, key, now, release)
    account("delayed ", now, format(" %.0f ", ceil(release * 1000 - 0.001)), key)
    return delay(now, release, slot)
end

-- Requests that were decided on, by the address of nginx's structure: an internal redirect, such as that of
-- `error_page` or `try_files`, is not another request.
local decided, decided_count = {}, 0

local function is_decided()
    local address = tonumber(ffi.cast("uintptr_t", get_request()))
    local started = start_time()
    if is_internal() and decided[address] == started then
        return true
    end
    if not decided[address] then
        if decided_count >= MAX_CACHED then
            decided, decided_count = {}, 0
        end
        decided_count = decided_count + 1
    end
    decided[address] = started
    return false
end

-- Decide on the current request: returns at once if it is accepted, later if it is delayed, and not if it is rejected.
local function limit(domain)
    if is_decided() then
        return
    end
    local key = domain .. "\0" .. identify()
    local now = now_seconds()
    local release = dictionary:get(key)
    if release and release > now then
        return delay_or_reject(domain, key, now, release)
    end
    account("accepted ", now, " 0 ", key)
end

---------------------------------------------------------------------------------------------------------------------
-- Records from the sidecar

local handlers = {}

-- Handle the complete records of `data`; returns the rest, or nil and an error.
local function handle_records(data)
    local position = 1
    while true do
        local _, stop, kind, first, second, size = find(data, "^(%l+) (%d+) (%d+) (%d+) ", position)
        if not stop then
            if #data - position >= 64 then
                return nil, "malformed record"
            end
            break
        end
        size = tonumber(size)
        if size > MAX_RECORD then
            return nil, "record too long"
        elseif stop + size + 1 > #data then
            break
        elseif byte(data, stop + size + 1) ~= 10 then
            return nil, "record without a final newline"
        end
        local handler = handlers[kind]
        if handler then
            handler(tonumber(first), tonumber(second), sub(data, stop + 1, stop + size))
        end
        position = stop + size + 2
    end
    return sub(data, position)
end

function handlers.hold(release, _, key)
    release = release / 1000
    local now = now_seconds()
    local known = dictionary:get(key)
    if release <= now or (known and known >= release) then
        return
    end
    local stored, _, forced = dictionary:set(key, release, release - now + 1)
    if forced or not stored then
        evicted = evicted + 1
    end
end

-- Forget all holds: the clock was set back, so the times in them are wrong. The sidecar sends them again.
function handlers.clear()
    local instance, settings = dictionary:get(INSTANCE), dictionary:get(SETTINGS)
    dictionary:flush_all()
    dictionary:set(INSTANCE, instance)
    dictionary:set(SETTINGS, settings)
end

-- The bytes are themselves records, of the kinds `set`, `spacing` and `rejection`.
function handlers.settings(_, _, records)
    dictionary:set(SETTINGS, records)
    handle_records(records)
end

function handlers.limits(delay_milliseconds, delayed)
    max_delay, max_delayed = delay_milliseconds / 1000, delayed
end

function handlers.longest(hold_milliseconds, prefix)
    max_hold = hold_milliseconds / 1000
    if prefix ~= ipv6_prefix then
        ipv6_prefix, address_cache, cached = prefix, {}, 0
    end
end

function handlers.identify(_, _, text)
    identify = parse_identify(own_identify or text)
end

function handlers.spacing(microseconds, _, domain)
    spacing[domain] = microseconds / 1000000
end

-- DOMAIN NUL FORM NUL BODY (NUL NAME NUL VALUE)*
function handlers.rejection(status, _, text)
    local parts = {}
    for part in string.gmatch(text .. "\0", "([^%z]*)%z") do
        parts[#parts + 1] = part
    end
    local domain, form = parts[1], parts[2]
    rejections[domain] = rejections[domain] or {}
    rejections[domain][form] = { status = status, body = parts[3], fields = { unpack(parts, 4) } }
end

---------------------------------------------------------------------------------------------------------------------
-- The connection of this worker to the sidecar. It runs in a timer; each connection has a timer of its own, so that
-- nothing is kept from one to the next.

local function instance()
    dictionary:add(INSTANCE, format("%d-%.3f", ngx.worker.pid(), now_seconds()))
    return dictionary:get(INSTANCE) or "unknown"
end

local function record(kind, first, second, bytes)
    return concat({ kind, " ", first, " ", second, " ", #bytes, " ", bytes, "\n" })
end

local function receive_records(sock, state)
    local rest = ""
    repeat
        local data, failure = sock:receiveany(MAX_RECEIVED)
        if data then
            rest, failure = handle_records(rest .. data)
        end
        state.failure = failure
    until failure
    wake:post(1)
end

-- Send queued verdicts, and every second the counters, until the connection fails or this worker exits.
local function send_records(sock, state)
    while not state.failure and not (ngx.worker.exiting() and queued == 0) do
        if queued == 0 then
            sender_waits = true
            wake:wait(1)
            sender_waits = false
        end
        ngx.sleep(BATCH_DELAY)
        local records, rest = queue, {}
        queue, queued = rest, 0
        if dropped + evicted > 0 or #records == 0 then
            records[#records + 1] = record("status", dropped, evicted, "")
            dropped, evicted = 0, 0
        end
        local _, failure = sock:send(records)
        state.failure = state.failure or failure
    end
end

local function serve_connection()
    local sock = ngx.socket.tcp()
    sock:settimeouts(TIMEOUT, TIMEOUT, TIMEOUT)
    local connected, failure = sock:connect("unix:" .. socket_path)
    if not connected then
        return failure
    end
    local state = {}
    sock:send(record("hello", VERSION, ngx.worker.id() or 0, instance()))
    local receiver = ngx.thread.spawn(receive_records, sock, state)
    send_records(sock, state)
    ngx.thread.kill(receiver)
    sock:close()
    return state.failure
end

-- Whether there is a socket; nginx itself would log each attempt to connect to none.
local function has_socket()
    local file, _, number = io.open(socket_path)
    if file then
        file:close()
    end
    return file or number ~= ENOENT
end

local function run(premature, last_failure)
    if premature or ngx.worker.exiting() then
        return
    end
    local failure = "no such socket"
    if has_socket() then
        local finished
        finished, failure = pcall(serve_connection)
        failure = failure or "closed"
    end
    if failure ~= last_failure then -- logged once, not at each attempt
        ngx.log(ngx.WARN, "headgate: no connection to the sidecar at ", socket_path, ": ", failure)
    end
    ngx.timer.at(RECONNECT_DELAY, run, failure)
end

---------------------------------------------------------------------------------------------------------------------

-- Call it in init_by_lua. `identify`, if given, has the last word: "client-address" or "header:NAME".
local function configure(options)
    dictionary = ngx.shared[options.dictionary]
    socket_path, own_identify = options.socket, options.identify
    identify = parse_identify(own_identify or "client-address")
end

-- Call it in init_worker_by_lua: connect to the sidecar.
local function start()
    wake = semaphore.new()
    handle_records(dictionary:get(SETTINGS) or "")
    ngx.timer.at(0, run)
end

return { configure = configure, start = start, limit = limit }
