"""HTTP/2 to the prefetch proxy (RFC 9113): several tunnels in one connection of a client.

`Http2` makes the connections, as the server's upgrade for the protocol `h2`. A connection (`connection`) finds the
frames in what comes (`frames`) and sees to each (`reception`). Those about requests, settings and ends the `h2` package
understands (`control`); DATA goes past it, both ways through one buffer in which it is framed in place, and its flow
control is ours alone (`window`). Each stream is one tunnel (`stream`). What is merely a nuisance is counted
(`floods`).
"""

from headgate.proxy.http2.connection import Http2

__all__ = ["Http2"]
