-- The response to a rejected request. Its text is from the sidecar, the same as that of `headgate serve`.

local ngx = ngx
local ceil, max, min = math.ceil, math.max, math.min
local find, format, gmatch, gsub, lower, match =
    string.find, string.format, string.gmatch, string.gsub, string.lower, string.match

local SECONDS_MARK = "\1" -- where a text has the seconds to wait
local PROBLEM = "application/problem+json"

local function strip(text)
    return match(text, "^%s*(.-)%s*$")
end

-- Return the weights of the media ranges in an Accept field; a malformed weight counts as 1.
local function parse_weights(accept)
    local weights = {}
    for member in gmatch(lower(accept), "[^,]+") do
        local name, parameters = match(member, "^([^;]*)(.*)$")
        local weight = 1
        for parameter in gmatch(parameters, "[^;]+") do
            local value = match(parameter, "^%s*q%s*=%s*(.-)%s*$")
            if value and (match(value, "^%d+%.?%d*$") or match(value, "^%.%d+$")) then
                weight = min(tonumber(value), 1)
                break
            end
        end
        name = strip(name)
        weights[name] = max(weights[name] or 0, weight)
    end
    return weights
end

local function quality(weights, kind, subtype)
    return weights[kind .. "/" .. subtype] or weights[kind .. "/*"] or weights["*/*"] or 0
end

-- Return whether a client prefers a problem document to text.
local function prefers_problem(accept)
    if not accept then
        return false
    end
    local subtype = find(lower(accept), PROBLEM, 1, true) and "problem+json" or "json"
    local weights = parse_weights(accept)
    return quality(weights, "application", subtype) > quality(weights, "text", "plain")
end

-- Parse a response that the sidecar has sent: DOMAIN NUL FORM NUL BODY (NUL NAME NUL VALUE)*; the form is `text` or
-- `problem`. Returns the domain, the form, and the response.
local function parse(status, text)
    local parts = {}
    for part in gmatch(text .. "\0", "([^%z]*)%z") do
        parts[#parts + 1] = part
    end
    return parts[1], parts[2], { status = status, body = parts[3], fields = { unpack(parts, 4) } }
end

-- Respond to the current request, which would be accepted after `seconds`; `forms` has the responses of its domain.
local function respond(forms, seconds)
    local form = prefers_problem(ngx.var.http_accept) and forms.problem or forms.text
    local text = format("%.0f", max(1, ceil(seconds - 0.000001)))
    if not form then
        ngx.header["Retry-After"] = text
        return ngx.exit(503)
    end
    ngx.status = form.status
    for index = 1, #form.fields, 2 do
        ngx.header[form.fields[index]] = gsub(form.fields[index + 1], SECONDS_MARK, text)
    end
    local body = gsub(form.body, SECONDS_MARK, text)
    ngx.header["Content-Length"] = #body
    ngx.print(body)
    return ngx.exit(form.status)
end

return { parse = parse, respond = respond, prefers_problem = prefers_problem }
