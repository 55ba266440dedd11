"""Any bytes at the socket of auth_request, in any pieces, are answered, or their connection is closed."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from headgate.config.tree import Sidecar
from headgate.limit import DelayUntil, Gatekeeper
from headgate.origin import Rejections
from headgate.origin.sidecar.auth_request import AuthRequest
from headgate.origin.sidecar.auth_request_connections import Connection

PIECES = st.sampled_from(
    [
        b"GET ",
        b"/check/api",
        b"/headgate-delay?1",
        b"?identify=header:x",
        b"?identify=",
        b" HTTP/1.1",
        b"\r\n",
        b"\n",
        b"\r\n\r\n",
        b"X-Headgate-Address: 192.0.2.1\r\n",
        b"X-Headgate-Address: 192.0.2.9\r\n",
        b"Accept: application/json;q=\r\n",
        b"x: 1\r\n",
        b"%ff%00",
        b"\xff\x00",
    ]
)
ANYTHING = st.lists(st.one_of(PIECES, st.binary(max_size=20)), max_size=12).map(b"".join)
HEAD = st.builds(
    b"GET /%b HTTP/1.1\r\nX-Headgate-Address: %b\r\n%b\r\n\r\n".__mod__,
    st.tuples(
        st.sampled_from([b"check/api", b"check/api?identify=header:x", b"headgate-delay?1", b"headgate-store?1"]),
        st.sampled_from([b"192.0.2.1", b"192.0.2.9", b"192.0.2.2", b"::1", b"\xff"]),
        ANYTHING,
    ),
)


class Transport:
    """Remembers what is written."""

    def __init__(self):
        self.written = b""
        self.is_open = True

    def write(self, data):
        assert self.is_open
        self.written += data

    def abort(self):
        self.is_open = False


def new_plane():
    gatekeeper = Gatekeeper(max_delay=1.0)
    gatekeeper.obey(DelayUntil("api", b"192.0.2.1", 1000.5))
    gatekeeper.obey(DelayUntil("api", b"192.0.2.9", 1099.0))
    return AuthRequest(
        gatekeeper=gatekeeper,
        rejections=Rejections(),
        settings=Sidecar(auth_request="s"),
        domains=["api"],
        log=lambda line: None,
        clock=lambda: 1000.0,
    )


def exchange(data, cuts):
    """Return what is written for `data`, cut into pieces, whether the connection is still open, and the counters."""
    plane, transport = new_plane(), Transport()
    connection = Connection(plane._table, plane._answer)
    connection.connection_made(transport)
    start = 0
    for end in [*sorted(min(cut, len(data)) for cut in cuts), len(data)]:
        if data[start:end]:
            connection.data_received(data[start:end])
        start = max(start, end)
    counters = plane.counters()
    connection.connection_lost(None)
    assert len(plane._table) == 0
    for number in list(plane._delays):
        plane._delays[number].delay.cancel()
    return transport.written, transport.is_open, counters


@given(st.one_of(ANYTHING, HEAD), st.lists(st.integers(0, 200), max_size=5))
def test_any_bytes_in_any_pieces(data, cuts):
    async def check():
        whole = exchange(data, [])
        assert all(part.startswith(b"HTTP/1.1 ") for part in whole[0].split(b"\r\n\r\n")[:-1])
        end = data.find(b"\r\n\r\n")
        if end == len(data) - 4:
            # One head is answered alike, whatever pieces it comes in. An empty line more would be a second request.
            assert exchange(data, cuts) == whole
        else:
            exchange(data, cuts)
        if end < 0:
            assert whole[0] == b""

    asyncio.run(check())
