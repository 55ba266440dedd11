-- Reports the requests of HAProxy to a headgate sidecar while they are processed, so that a slow origin delays no
-- report. HAProxy loads this file once per thread (lua-load-per-thread). The action `lua.headgate ADDRESS` queues the
-- line in the variable txn.headgate_line, and a task of the same thread sends what is queued to the unix socket of the
-- sidecar at that address.
--
-- No request waits for the sidecar. The queue is bounded: without a sidecar, or when it does not read, lines are dropped
-- and counted. The task ends, and closes its connection, when requests stop: an open connection would keep the old
-- process of a reload alive.

local MAX_QUEUED = 10000     -- lines; about 1 MB
local PAUSE = 5              -- milliseconds between two messages
local MAX_IDLE = 100         -- pauses without a request before the connection is closed
local RETRY_PAUSE = 500      -- milliseconds after a failure
local SEND_TIMEOUT = 1       -- seconds

local function connect(address)
    local connection = core.tcp()
    connection:settimeout(SEND_TIMEOUT)
    if connection:connect(address) then
        return connection
    end
    connection:close()
end

-- Returns the function that queues a line for the sidecar at an address.
local function new_reporter(address)
    local queue, count, dropped = {}, 0, 0
    local is_running = false

    -- Returns the queued lines as one text, and their number.
    local function take()
        local lines, number = table.concat(queue, "\n", 1, count) .. "\n", count
        if dropped > 0 then
            lines = lines .. "dropped " .. dropped .. "\n"
        end
        queue, count, dropped = {}, 0, 0
        return lines, number
    end

    local function send_queued()
        local connection, idle = nil, 0
        while idle < MAX_IDLE do
            core.msleep(PAUSE)
            idle = idle + 1
            if count > 0 then
                idle = 0
                connection = connection or connect(address)
                local before = dropped
                local lines, number = take()
                -- send returns -1 for a connection that has been closed.
                if not connection or connection:send(lines) ~= #lines then
                    dropped = dropped + before + number
                    if connection then
                        connection:close()
                        connection = nil
                    end
                    core.msleep(RETRY_PAUSE)
                end
            end
        end
        if connection then
            connection:close()
        end
    end

    local function run()
        local done, reason = pcall(send_queued)
        is_running = false
        if not done then
            core.Alert("headgate: requests are not reported for a moment: " .. tostring(reason))
        end
    end

    return function(line)
        if count < MAX_QUEUED then
            count = count + 1
            queue[count] = line
        else
            dropped = dropped + 1
        end
        if not is_running then
            is_running = true
            core.register_task(run)
        end
    end
end

local reporters = {}  -- by address; the configuration has few

core.register_action("headgate", { "http-req" }, function(txn, address)
    local report = reporters[address]
    if not report then
        report = new_reporter(address)
        reporters[address] = report
    end
    local line = txn:get_var("txn.headgate_line")
    if line then  -- it is missing if HAProxy may not use more memory for variables
        report(line)
    end
end, 1)
