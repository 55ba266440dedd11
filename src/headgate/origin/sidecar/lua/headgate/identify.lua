-- The identifier of a request, the same bytes as those of `headgate serve`: so both share one limit for each client.

local bit = require "bit"
local ffi = require "ffi"
local get_request = require("resty.core.base").get_request

local ngx = ngx
local max = math.max
local concat = table.concat
local byte, find, format, gsub, lower, match, sub =
    string.byte, string.find, string.format, string.gsub, string.lower, string.match, string.sub

local MAX_IDENTIFIER_SIZE = 255 -- a longer one could not be named in a control message
local MAX_CACHED_ADDRESSES = 16384
local MAX_LINES = 128 -- of a head; one with more is read in another way
local IPV4_MAPPED = "\0\0\0\0\0\0\0\0\0\0\255\255"

-- Return the text of an IPv6 network, of the `prefix` first bits of a binary address.
local function ipv6_network(address, prefix)
    local groups, zeros, longest, last = {}, 0, 1, nil
    for index = 1, 8 do
        local kept = max(0, 16 - max(0, index * 16 - prefix)) -- bits of this group that belong to the network
        local high, low = byte(address, index * 2 - 1, index * 2)
        local group = bit.band(high * 256 + low, 65536 - 2 ^ (16 - kept))
        groups[index] = format("%x", group)
        zeros = group == 0 and zeros + 1 or 0
        if zeros > longest then
            longest, last = zeros, index
        end
    end
    local text = concat(groups, ":")
    if last then -- RFC 5952, section 4.2: "::" stands for the first of the longest runs of at least two zeros
        text = concat(groups, ":", 1, last - longest) .. "::" .. concat(groups, ":", last + 1)
    end
    return prefix == 128 and text or text .. "/" .. prefix
end

local function of_binary_address(address, prefix)
    if #address == 16 and sub(address, 1, 12) == IPV4_MAPPED then
        return format("%d.%d.%d.%d", byte(address, 13, 16))
    elseif #address == 16 then
        return ipv6_network(address, prefix)
    end
    return "unknown" -- the client is connected by a unix socket
end

local function by_address(prefix)
    local cache, cached = {}, 0
    return function()
        local address = ngx.var.remote_addr
        if not find(address, ":", 1, true) then
            return address -- of IPv4
        end
        local known = cache[address]
        if not known then
            if cached >= MAX_CACHED_ADDRESSES then
                cache, cached = {}, 0
            end
            known = of_binary_address(ngx.var.binary_remote_addr, prefix)
            cache[address], cached = known, cached + 1
        end
        return known
    end
end

ffi.cdef "unsigned char *SHA256(const unsigned char *data, size_t size, unsigned char *digest);"

-- Return the digest in hexadecimal, by the OpenSSL that nginx was built with; nil if there is none.
local function sha256(value)
    local digest = ffi.new("unsigned char[32]")
    if not pcall(function() ffi.C.SHA256(value, #value, digest) end) then
        return nil
    end
    return (gsub(ffi.string(digest, 32), ".", function(one) return format("%02x", byte(one)) end))
end

local function short_identifier(value)
    if #value <= MAX_IDENTIFIER_SIZE then
        return value
    end
    local digest = sha256(value)
    return digest and "sha256:" .. digest
end

ffi.cdef "int memcmp(const void *first, const void *second, size_t size);"

local lines, truncated = ffi.new("ngx_http_lua_ffi_table_elt_t[?]", MAX_LINES), ffi.new("int[1]")

-- Return the value of a field, or nil if it is missing or repeated. It reads the lines of the head where nginx has them:
-- `ngx.req.get_headers` would create a table, and two strings for each line, which takes two microseconds.
local function single_value(name)
    local request = get_request()
    local count = ffi.C.ngx_http_lua_ffi_req_get_headers_count(request, 0, truncated)
    if count > MAX_LINES then
        local value = ngx.req.get_headers(0)[name]
        return type(value) == "string" and value or nil
    elseif count <= 0 or ffi.C.ngx_http_lua_ffi_req_get_headers(request, lines, count, 0) ~= 0 then
        return nil
    end
    local found
    for index = 0, count - 1 do
        local key = lines[index].key
        if key.len == #name and ffi.C.memcmp(key.data, name, #name) == 0 then
            if found then
                return nil
            end
            found = lines[index].value
        end
    end
    return found and ffi.string(found.data, found.len)
end

-- A repeated field is not used: its client would have a new limit for each line that it adds. No address begins with
-- "=". The scheme of Authorization is case-insensitive.
local function by_header(name, otherwise)
    return function()
        local value = single_value(name)
        value = value and match(value, "^%s*(.-)%s*$") or ""
        if name == "authorization" then
            local scheme, rest = match(value, "^([^ \t]+)[ \t]+(.*)$")
            value = scheme and lower(scheme) .. " " .. rest or value
        end
        return value ~= "" and short_identifier("=" .. value) or otherwise()
    end
end

-- Return the function that identifies the current request: by `client-address`, or by `header:NAME`, where the address
-- identifies requests without that field.
local function new(method, ipv6_prefix)
    local otherwise = by_address(ipv6_prefix)
    local name = match(lower(method), "^header:(.+)$")
    return name and by_header(name, otherwise) or otherwise
end

return { new = new }
