-- The bytes between a worker and the sidecar: records, KIND NUMBER NUMBER SIZE BYTES LF. The bytes may be any.

local byte, concat, find, sub = string.byte, table.concat, string.find, string.sub

local MAX_HEAD_SIZE = 64
local MAX_SIZE = 8388608 -- of the settings, the largest record
local LF = 10

local function encode(kind, first, second, bytes)
    return concat({ kind, " ", first, " ", second, " ", #bytes, " ", bytes, "\n" })
end

-- Call `handlers[kind](first, second, bytes)` for each complete record in `data`; kinds without a handler are ignored.
-- Returns the incomplete rest, or nil and what is wrong.
local function handle(data, handlers)
    local position = 1
    while true do
        local _, head, kind, first, second, size = find(data, "^(%l+) (%d+) (%d+) (%d+) ", position)
        if not head then
            if #data - position >= MAX_HEAD_SIZE then
                return nil, "malformed record"
            end
            return sub(data, position)
        end
        local last = head + tonumber(size) + 1
        if last - head > MAX_SIZE then
            return nil, "record too long"
        elseif last > #data then
            return sub(data, position)
        elseif byte(data, last) ~= LF then
            return nil, "record without a line feed at its end"
        end
        local handler = handlers[kind]
        if handler then
            handler(tonumber(first), tonumber(second), sub(data, head + 1, last - 1))
        end
        position = last + 1
    end
end

return { encode = encode, handle = handle }
