"""Several tunnels in one client connection (RFC 9113).

`frames` parses and builds frames, `limits` has the windows and bounds valid but abusive frames; `engine` is the
protocol of a connection without I/O: bytes in, `events` out. `stream` has the tunnels and pages. `connection` has the
socket and passes events to streams, `dispatch` decides on requests, `states` has the life of a connection; `Http2`
creates the connections of an event loop.
"""

from headgate.proxy.http2.connection import Http2

__all__ = ["Http2"]
