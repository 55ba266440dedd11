-- The connection of a worker to the sidecar: verdicts go out, settings and holds come in. No request waits for it.

local identify = require "headgate.identify"
local records = require "headgate.records"
local reject = require "headgate.reject"
local semaphore = require "ngx.semaphore"

local ngx = ngx
local format = string.format

local VERSION = 2
local BATCH_DELAY = 0.005 -- seconds that the first verdict of a batch waits for more
local RECONNECT_DELAY = 0.5
local TIMEOUT = 4000 -- milliseconds; the sidecar sends a record every second
local MAX_QUEUED = 10000 -- verdicts
local MAX_RECEIVED = 65536 -- bytes at once
local ENOENT = 2

-- Keys of the dictionary that are not holds. That of a hold is DOMAIN NUL IDENTIFIER.
local INSTANCE, SETTINGS = "instance", "settings"

local dictionary, socket_path, own_method

-- What the sidecar sends; these values apply until a sidecar has been connected.
local settings = {
    max_delay = 5,
    max_delayed = 1024,
    max_hold = 3600,
    identify = identify.new("client-address", 64),
    spacing = {}, -- seconds between two delayed requests of an identifier, by domain
    rejections = {}, -- responses, by domain and form
}

---------------------------------------------------------------------------------------------------------------------
-- Verdicts wait in a queue until the connection sends them. If it is full, it is emptied, and they are counted.

local queue, queued, dropped, evicted = {}, 0, 0, 0
local wake, is_waiting = nil, false

-- Queue a verdict: `accepted`, `delayed` or `rejected`; both times are texts of whole milliseconds.
local function account(verdict, received, release, key)
    if queued >= MAX_QUEUED then
        dropped = dropped + queued
        queue, queued = {}, 0
    end
    queued = queued + 1
    queue[queued] = verdict .. " " .. received .. " " .. release .. " " .. #key .. " " .. key .. "\n"
    if is_waiting then
        is_waiting = false
        wake:post(1)
    end
end

-- Take what is to be sent: the verdicts and, if there are none or some were dropped, the counters.
local function take_queue()
    local taken = queue
    if dropped + evicted > 0 or queued == 0 then
        taken[queued + 1] = records.encode("status", dropped, evicted, "")
        dropped, evicted = 0, 0
    end
    queue, queued = {}, 0
    return taken
end

-- Put back what a connection that was closed has not sent.
local function put_back(taken)
    if #taken + queued > MAX_QUEUED then
        dropped = dropped + #taken
        return
    end
    for index = 1, queued do
        taken[#taken + 1] = queue[index]
    end
    queue, queued = taken, #taken
end

---------------------------------------------------------------------------------------------------------------------
-- Records from the sidecar

local handlers = {}
local setting_handlers = {}

function handlers.hold(release, _, key)
    release = release / 1000
    local now = ngx.now()
    local known = dictionary:get(key)
    if release <= now or (known and known >= release) then
        return
    end
    local stored, _, forced = dictionary:set(key, release, release - now + 1)
    if forced or not stored then -- the dictionary is full; it drops those that were not read for the longest time
        evicted = evicted + 1
    end
end

-- Forget all holds: the clock was set back, and their times are wrong. The sidecar sends them again.
function handlers.clear()
    local instance, known = dictionary:get(INSTANCE), dictionary:get(SETTINGS)
    dictionary:flush_all()
    dictionary:set(INSTANCE, instance)
    dictionary:set(SETTINGS, known)
end

local has_settings = false

local function apply_settings(bytes)
    has_settings = true
    settings.spacing, settings.rejections = {}, {}
    records.handle(bytes, setting_handlers)
end

-- The bytes are records. They are kept for workers that have no connection yet.
function handlers.settings(_, _, bytes)
    dictionary:set(SETTINGS, bytes)
    apply_settings(bytes)
end

-- Use the settings that another worker has received, unless this worker has some.
local function find_settings()
    local bytes = not has_settings and dictionary:get(SETTINGS)
    if bytes then
        apply_settings(bytes)
    end
end

function setting_handlers.delays(milliseconds, requests)
    settings.max_delay, settings.max_delayed = milliseconds / 1000, requests
end

function setting_handlers.holds(milliseconds)
    settings.max_hold = milliseconds / 1000
end

function setting_handlers.identify(ipv6_prefix, _, method)
    settings.identify = identify.new(own_method or method, ipv6_prefix)
end

function setting_handlers.spacing(microseconds, _, domain)
    settings.spacing[domain] = microseconds / 1000000
end

function setting_handlers.rejection(status, _, text)
    local domain, form, response = reject.parse(status, text)
    settings.rejections[domain] = settings.rejections[domain] or {}
    settings.rejections[domain][form] = response
end

---------------------------------------------------------------------------------------------------------------------
-- The connection runs in a timer, one of those that nginx starts again and again: a timer that this one made at its end
-- could be refused (lua_max_pending_timers), and the worker would be without a connection for ever.

-- Return the name of this nginx, by which the sidecar knows that its workers share a dictionary. A reload keeps the
-- dictionary, a restart does not.
local function instance()
    dictionary:add(INSTANCE, format("%d-%.3f", ngx.worker.pid(), ngx.now()))
    return dictionary:get(INSTANCE) or "unknown"
end

-- Handle what the sidecar sends; returns what has ended it.
local function receive(sock, connection)
    local rest = ""
    while true do
        local data, failure = sock:receiveany(MAX_RECEIVED)
        if data then
            connection.is_greeted = true
            rest, failure = records.handle(rest .. data, handlers)
        end
        if failure then
            return failure
        end
    end
end

local function run_receiver(sock, connection)
    local _, failure = pcall(receive, sock, connection)
    connection.failure = connection.failure or failure
    wake:post(1)
end

-- Send what is queued, and the counters every second, until the connection fails or this worker exits. Nothing is sent
-- before the sidecar has answered: one that is suspended accepts connections too.
local function send(sock, connection)
    while not connection.failure and not (ngx.worker.exiting() and queued == 0) do
        if queued == 0 or not connection.is_greeted then
            is_waiting = queued == 0
            wake:wait(1)
            is_waiting = false
        end
        ngx.sleep(BATCH_DELAY)
        if connection.is_greeted then
            local taken = take_queue()
            local _, failure = sock:send(taken)
            if failure and failure ~= "timeout" then -- after a timeout, a part of it may still be read
                put_back(taken)
            end
            connection.failure = connection.failure or failure
        end
    end
end

-- Connect, and serve the connection until it ends; returns what has ended it.
local function serve()
    local sock = ngx.socket.tcp()
    sock:settimeouts(TIMEOUT, TIMEOUT, TIMEOUT)
    local connected, failure = sock:connect("unix:" .. socket_path)
    if not connected then
        return failure
    end
    local connection = {}
    sock:send(records.encode("hello", VERSION, ngx.worker.count(), instance()))
    local receiver = ngx.thread.spawn(run_receiver, sock, connection)
    send(sock, connection)
    ngx.thread.kill(receiver)
    sock:close()
    return connection.failure
end

-- Whether there is a socket; nginx itself would log each attempt to connect to none.
local function has_socket()
    local file, _, number = io.open(socket_path)
    if file then
        file:close()
    end
    return file or number ~= ENOENT
end

local is_running, last_failure = false, nil

local function run(premature)
    if premature or is_running or ngx.worker.exiting() then
        return
    end
    is_running = true
    find_settings()
    local failure = "no such file"
    if has_socket() then
        local finished
        finished, failure = pcall(serve)
        failure = failure or "closed"
    end
    if failure ~= last_failure and not ngx.worker.exiting() then -- logged once, not at each attempt
        ngx.log(ngx.ERR, "headgate: no connection to the sidecar at ", socket_path, ": ", failure)
    end
    is_running, last_failure = false, failure
end

-- In init_by_lua: `options` are those of `headgate.configure`. Returns the dictionary of holds.
local function configure(options)
    socket_path, own_method = options.socket, options.identify
    dictionary = ngx.shared[options.dictionary]
    if not dictionary then
        error("headgate: no lua_shared_dict " .. tostring(options.dictionary))
    end
    settings.identify = identify.new(own_method or "client-address", 64)
    return dictionary
end

-- In init_worker_by_lua: connect.
local function start()
    wake = semaphore.new()
    find_settings()
    ngx.timer.at(0, run)
    ngx.timer.every(RECONNECT_DELAY, run)
end

return {
    account = account, configure = configure, find_settings = find_settings, settings = settings, start = start
}
