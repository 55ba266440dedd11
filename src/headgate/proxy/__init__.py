"""The prefetch proxy: a CONNECT proxy that fetches an origin's traffic advice before it opens a tunnel to it.

`server` has the connections. `listener` accepts them and runs the TLS handshake; `http1` and `http2` read CONNECT
requests from them. `admission` decides on each request: the host rules, the client's limits and token, the addresses,
the advice; then it connects to the target. `tunnel` relays the bytes of HTTP/1.1 tunnels, `http2` those of its own.
`refusal` has every reason for a refusal, with its status and fields; `connect` what these parts give each other.
"""
