"""Several tunnels in one client connection (RFC 9113).

`frames` parses and builds frames, `limits` has the windows and bounds valid but abusive frames; `engine` is the
protocol of a connection without I/O: bytes in, `events` out. `stream` has the tunnels and pages. `connection` has the
socket and passes events to streams, with the memory in `buffers`; `dispatch` decides on requests.
"""
