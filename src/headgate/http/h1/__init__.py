"""One strict grammar of HTTP/1 messages: request heads, response heads, bodies. Pure: bytes in, values or errors out.

It accepts less than RFC 9112 permits: a message that two recipients could read in two ways is refused with a
`ProtocolError`, so a proxy forwards only messages with one meaning. A server reads requests like this:

    buffer.append(data)
    while (raw := buffer.next_head(limits)) is not None:
        request = parse_request_head(raw, limits)
        …                                   # the body, if `request.has_body`, is read from `buffer.take()`

`syntax` contains what the other modules share; `request` and `response` parse heads, `body` parses bodies.
"""

from headgate.http.h1.body import MAX_TRAILERS_SIZE, BodyReader, ChunkedBody, LengthBody, UnboundedBody
from headgate.http.h1.request import (
    RequestBuffer,
    RequestHead,
    RequestLimits,
    parse_request_head,
    parse_usual_request_head,
)
from headgate.http.h1.response import (
    ResponseHead,
    check_response_start,
    parse_response_head,
    parse_usual_response_head,
)
from headgate.http.h1.syntax import is_host_and_port

__all__ = [
    "MAX_TRAILERS_SIZE",
    "BodyReader",
    "ChunkedBody",
    "LengthBody",
    "RequestBuffer",
    "RequestHead",
    "RequestLimits",
    "ResponseHead",
    "UnboundedBody",
    "check_response_start",
    "is_host_and_port",
    "parse_request_head",
    "parse_response_head",
    "parse_usual_request_head",
    "parse_usual_response_head",
]
