-- nginx as a gatekeeper: each request is accepted, delayed or rejected by the holds in a shared dictionary.
--
--   init_by_lua          require("headgate").configure({ dictionary = "headgate", socket = "/run/headgate.sock" })
--   init_worker_by_lua   require("headgate").start()
--   rewrite_by_lua       require("headgate").limit("api")
--
-- The rewrite phase is before the access phase, so requests that nginx refuses itself (401, 403) are counted; and a
-- handler of the access phase that accepts a request would, with `satisfy any`, open a location that asks a password.
--
-- A decision asks no other process: it reads one entry of the dictionary, which all workers share. A connection of
-- each worker to `headgate sidecar` brings the holds and takes the verdicts (headgate/sidecar.lua). Without a sidecar
-- requests are accepted, except those of identifiers that are still held.

local ffi = require "ffi"
local get_request = require("resty.core.base").get_request
local reject = require "headgate.reject"
local sidecar = require "headgate.sidecar"

local ngx = ngx
local ceil, floor = math.ceil, math.floor
local format = string.format
local account, settings = sidecar.account, sidecar.settings

local MAX_REMEMBERED = 16384 -- requests

local holds -- the dictionary: release times in seconds since 1970, by domain and identifier

---------------------------------------------------------------------------------------------------------------------
-- An internal redirect, such as those of `error_page` and `try_files`, is not another request. Requests that were
-- decided on are known by the address of nginx's structure, which later requests may have too, the connection, and
-- their number in it.

local remembered, remembered_count = {}, 0

local function is_decided()
    local address = tonumber(ffi.cast("uintptr_t", get_request()))
    local name = ngx.var.connection .. " " .. ngx.var.connection_requests
    if remembered[address] == name then
        return ngx.req.is_internal()
    end
    if not remembered[address] then
        if remembered_count >= MAX_REMEMBERED then
            remembered, remembered_count = {}, 0
        end
        remembered_count = remembered_count + 1
    end
    remembered[address] = name
    return false
end

---------------------------------------------------------------------------------------------------------------------
-- Slots of the delayed requests of this worker, counted by the second in which they end: a slot that was not freed
-- ends by itself.

local slots, taken, oldest = {}, 0, 0

-- Take a slot until `release`; returns the second in which it ends, or nil if there is none.
local function take_slot(now, release)
    local second = floor(now)
    while taken > 0 and oldest < second do
        taken = taken - (slots[oldest] or 0)
        slots[oldest] = nil
        oldest = oldest + 1
    end
    if taken == 0 then
        oldest = second
    end
    if taken >= ceil(settings.max_delayed / ngx.worker.count()) then
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

-- Text of whole milliseconds; many requests are received in each.
local last_instant, last_milliseconds

local function milliseconds(instant)
    if instant ~= last_instant then
        last_instant, last_milliseconds = instant, format("%.0f", instant * 1000)
    end
    return last_milliseconds
end

-- Return the release of a delayed request, and move the hold forward by one interval, so that requests are not all
-- released at one instant. The addition is atomic: no two requests, of any worker, have the same release.
local function take_release(domain, key, now, release)
    local interval = settings.spacing[domain]
    local following = interval and holds:incr(key, interval)
    if not following then
        return release
    end
    holds:expire(key, following - now + 1)
    return following - interval
end

-- Wait until the release of a delayed request. With `lua_check_client_abort on`, a client that leaves frees its slot.
local function wait(now, release, slot)
    ngx.on_abort(function()
        free_slot(slot)
        ngx.exit(499)
    end)
    -- Both clocks are in whole milliseconds, so one is added: never early.
    ngx.sleep((ceil((release - now) * 1000) + 1) / 1000)
    free_slot(slot)
end

local function delay_or_reject(domain, key, now, release)
    sidecar.find_settings()
    if release - now > settings.max_hold then -- the clock was set back, and the sidecar is not running
        release = now + settings.max_hold
        holds:set(key, release, settings.max_hold + 1)
    end
    local slot = release - now <= settings.max_delay and take_slot(now, release)
    if not slot then
        account("rejected", milliseconds(now), "0", key)
        return reject.respond(settings.rejections[domain] or {}, release - now)
    end
    release = take_release(domain, key, now, release)
    account("delayed", milliseconds(now), format("%.0f", ceil(release * 1000 - 0.001)), key)
    return wait(now, release, slot)
end

local function decide(domain)
    if is_decided() then
        return
    end
    local key = domain .. "\0" .. settings.identify()
    local now = ngx.now()
    local release = holds:get(key)
    if release and release > now then
        return delay_or_reject(domain, key, now, release)
    end
    account("accepted", milliseconds(now), "0", key)
end

---------------------------------------------------------------------------------------------------------------------

-- Call it in init_by_lua. `dictionary` names the lua_shared_dict, `socket` that of the sidecar. `identify`, if given,
-- has the last word on how to identify clients: "client-address" or "header:NAME".
local function configure(options)
    holds = sidecar.configure(options)
end

-- Call it in rewrite_by_lua: returns at once if the current request is accepted, later if it is delayed, and not if it
-- is rejected. An error in here is logged, and the request accepted. Subrequests belong to a request that was decided on.
local function limit(domain)
    if ngx.is_subrequest then
        return
    end
    local finished, failure = pcall(decide, domain)
    if not finished then
        ngx.log(ngx.ERR, "headgate: ", failure)
    end
end

return { configure = configure, start = sidecar.start, limit = limit }
