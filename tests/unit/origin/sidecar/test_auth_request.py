"""The data plane that nginx's auth_request asks, over a real unix socket."""

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.config.tree import Sidecar
from headgate.errors import ConfigurationError
from headgate.limit import DelayUntil, Domain, Gatekeeper, Rule
from headgate.limit.messages import short_identifier
from headgate.origin import Rejections
from headgate.origin.sidecar.auth_request import MAX_HEAD_SIZE, AuthRequest, _Connection

START = b"GET /check/api?identify=client-address HTTP/1.1\r\nHost: headgate-sidecar.invalid\r\n"
ACCEPTED = b"HTTP/1.1 204 No Content\r\n\r\n"
FAILED = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"


END = b"\r\n\r\n"
API = b"/check/api?identify=client-address"
TARGETS = [API, b"/check/api?identify=header:x", b"/headgate-delay?1"]


def head(address=b"192.0.2.1", *fields, target=API):
    lines = [
        b"GET " + target + b" HTTP/1.1",
        b"Host: headgate-sidecar.invalid",
        b"X-Headgate-Address: " + address,
        *fields,
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n"


class Plane:
    """A data plane at the socket `s` of a folder; `verdicts` has the accounting."""

    def __init__(self, folder, *, rules=(), clock=time.time, domains=("api",), **settings):
        self.verdicts = []
        self.lines = []
        self.gatekeeper = Gatekeeper(lambda accounting, _: self.verdicts.append(accounting), max_delay=1.0)
        self.path = str(folder / "s")
        self.plane = AuthRequest(
            gatekeeper=self.gatekeeper,
            rejections=Rejections([Domain("api", tuple(Rule.parse(rule) for rule in rules))]),
            settings=Sidecar(auth_request=self.path, **settings),
            domains=domains,
            log=self.lines.append,
            clock=clock,
        )
        self._clock = clock
        self._writers = []

    def hold(self, seconds, identifier=b"192.0.2.1", domain="api"):
        self.gatekeeper.obey(DelayUntil(domain, identifier, self._clock() + seconds))

    async def connect(self):
        reader, writer = await asyncio.open_unix_connection(self.path)
        self._writers.append(writer)
        return reader, writer

    async def close(self):
        """Close the connections and the data plane."""
        for writer in self._writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
        await self.plane.close()

    async def ask(self, data=None, connection=None):
        """Send a head; return the answer."""
        reader, writer = connection or await self.connect()
        writer.write(head() if data is None else data)
        return await reader.readuntil(END)


@asynccontextmanager
async def started(plane):
    await plane.plane.start()
    try:
        yield plane
    finally:
        await plane.close()


def asked(plane, *heads):
    """Return the answers to some heads on one connection."""

    async def main():
        async with started(plane):
            connection = await plane.connect()
            return [await plane.ask(data, connection) for data in heads]

    return asyncio.run(main())


def fields_of(answer):
    return dict(line.split(b": ", 1) for line in answer.split(b"\r\n")[1:-2])


def test_accepted_requests_share_a_connection(tmp_path):
    plane = Plane(tmp_path)
    assert asked(plane, *[head()] * 5) == [ACCEPTED] * 5
    assert plane.plane.totals.connections == 1
    assert plane.plane.totals.requests == 5
    assert [(verdict.domain, verdict.identifier) for verdict in plane.verdicts] == [("api", b"192.0.2.1")] * 5


def test_rejection_has_the_fields_and_the_body(tmp_path):
    plane = Plane(tmp_path, rules=["1/h burst 3"], clock=lambda: 1000.25)
    plane.hold(100)
    (answer,) = asked(plane, head())
    assert answer.startswith(b"HTTP/1.1 403 ")
    detail = b"Requests for 'api' come faster than its rule allows; this one would be accepted in 100 s."
    assert fields_of(answer) == {
        b"Content-Length": b"0",
        b"X-Headgate-Status": b"503",
        b"X-Headgate-Body": b"Too many requests. " + detail,
        b"retry-after": b"100",
        b"ratelimit": b'"api";r=0;t=100',
        b"ratelimit-policy": b'"api";q=3;w=10800',
    }


def test_policies_that_nginx_would_refuse_are_left_out(tmp_path):
    plane = Plane(tmp_path, rules=[f"{number}/h" for number in range(1, 500)])
    plane.hold(100)
    (answer,) = asked(plane, head())
    assert len(answer) < 4096
    assert b"retry-after" in answer
    assert b"ratelimit-policy" not in answer


@pytest.mark.parametrize(
    ("lines", "identifier"),
    [
        ([b"X-Api-Key: one"], b"=one"),
        ([b"x-API-key:\t one \t"], b"=one"),
        ([b'X-Api-Key: "; \\ $x %00 {}'], b'="; \\ $x %00 {}'),
        ([b"X-Api-Key: \x01\x7f\xff"], b"=\x01\x7f\xff"),
        ([b"X-Api-Key: " + b"a" * 254], b"=" + b"a" * 254),
        ([b"X-Api-Key: " + b"a" * 255], short_identifier(b"=" + b"a" * 255)),
        ([b"X-Api-Key: one", b"X-Api-Key: two"], b"192.0.2.1"),
        ([b"X-Api-Key:"], b"192.0.2.1"),
        ([b"X_Api_Key: one"], b"192.0.2.1"),
        ([b"X-Api-Key-2: one"], b"192.0.2.1"),
        ([], b"192.0.2.1"),
        ([b"Cookie: \x02 not a value of HTTP", b"X-Api-Key: one"], b"=one"),
    ],
)
def test_header_identifies(tmp_path, lines, identifier):
    plane, target = Plane(tmp_path), b"/check/api?identify=header:x-api-key"
    assert asked(plane, head(b"192.0.2.1", *lines, target=target)) == [ACCEPTED]
    assert plane.verdicts[0].identifier == identifier


def test_domain_is_percent_encoded(tmp_path):
    plane = Plane(tmp_path, domains=("api", 'a b/"é'))
    assert asked(plane, head(target=b"/check/a%20b%2F%22%C3%A9?identify=client-address")) == [ACCEPTED]
    assert plane.verdicts[0].domain == 'a b/"é'


def test_requests_for_an_unknown_domain_are_accepted_and_each_name_is_logged_once_an_hour(tmp_path):
    plane = Plane(tmp_path, clock=lambda: 1_700_000_000.0)
    names = [b"other%d" % number for number in range(40)] + [b"other0", b"%FF%00"]
    heads = [head(target=b"/check/%b?identify=client-address" % name) for name in names]
    assert asked(plane, *heads) == [FAILED] * 42
    assert plane.verdicts == []
    assert len(plane.lines) == 32
    assert plane.lines[0].startswith("warning: nginx names the domain 'other0', which this sidecar does not have; ")
    plane.plane.report_unknown("other0", now=1_700_003_601.0)
    assert len(plane.lines) == 33
    assert plane.plane.totals.failed["unknown_domain"] == 43


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\r\n\r\n",
        b"\0\xff\r\n\r\n",
        b"GET /check/?identify=client-address HTTP/1.1\r\nX-Headgate-Address: 192.0.2.1\r\n\r\n",
        b"GET /check/api/x?identify=client-address HTTP/1.1\r\nX-Headgate-Address: 192.0.2.1\r\n\r\n",
        b"GET /check/api?identify=x HTTP/1.1\r\nX-Headgate-Address: 192.0.2.1\r\n\r\n",
        b"GET /check/api?identify=header:%FF HTTP/1.1\r\nX-Headgate-Address: 192.0.2.1\r\n\r\n",
        b"GET /check/api?identify=" + b"a" * 5000 + b" HTTP/1.1\r\n\r\n",
        b"POST/check/api?identify=client-address HTTP/1.1\r\nX-Headgate-Address: 192.0.2.1\r\n\r\n",
        b"XXX /check/api?identify=client-address HTTP/1.1\r\nX-Headgate-Address: 192.0.2.1\r\n\r\n",
        START + b"\r\n",
        b"GET /check/api HTTP/1.1\r\nX-Headgate-Address: 192.0.2.1\r\n\r\n",
        b"GET /headgate-delay?-1 HTTP/1.1\r\n\r\n",
        b"GET /headgate-delay?9999999999999999 HTTP/1.1\r\n\r\n",
    ],
)
def test_malformed_requests_are_counted_and_nginx_accepts_them(tmp_path, data):
    plane = Plane(tmp_path)
    assert asked(plane, data, head()) == [FAILED, ACCEPTED]
    assert plane.plane.totals.failed["malformed"] == 1
    assert len(plane.verdicts) == 1


async def test_delayed_request_is_redirected_and_accepted_at_its_release(tmp_path):
    plane = Plane(tmp_path)
    async with started(plane):
        plane.hold(0.2)
        release = plane.gatekeeper.held("api", b"192.0.2.1", now=time.time())
        answer = await plane.ask()
        assert answer.startswith(b"HTTP/1.1 200 ")
        uri = fields_of(answer)[b"X-Accel-Redirect"]
        assert uri.startswith(b"/headgate-delay?")
        delay = head(target=uri)
        assert plane.plane.details()["delayed"] == 1
        assert await plane.ask(delay) == ACCEPTED
        assert time.time() >= release
        assert plane.plane.details()["delayed"] == 0
        assert await plane.ask(delay) == ACCEPTED  # nginx asks late
    assert [verdict.status.value for verdict in plane.verdicts] == ["DELAYED"]


def test_longest_delay_is_limited(tmp_path):
    with pytest.raises(ConfigurationError, match=r"sidecar.max_delay: nginx without Lua .* at most 40 s, got 40.5"):
        Plane(tmp_path, max_delay=40.5)


async def test_close_accepts_delayed_requests_and_removes_the_socket(tmp_path):
    plane = Plane(tmp_path)
    await plane.plane.start()
    assert plane.plane.unready() == ""
    plane.hold(0.9)
    uri = fields_of(await plane.ask())[b"X-Accel-Redirect"]
    delayed = asyncio.create_task(plane.ask(head(target=uri)))
    await asyncio.sleep(0.05)
    await plane.plane.close()
    assert await delayed == ACCEPTED
    assert plane.gatekeeper.delayed == 0
    await plane.close()
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("data", [head() * 2, head() + b"x"])
async def test_a_connection_with_bytes_after_the_head_is_closed(tmp_path, data):
    async with started(Plane(tmp_path)) as plane:
        reader, writer = await plane.connect()
        writer.write(data)
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        assert await plane.ask() == ACCEPTED


@pytest.mark.parametrize("size", [MAX_HEAD_SIZE - 200, MAX_HEAD_SIZE, MAX_HEAD_SIZE + 1, MAX_HEAD_SIZE * 3])
@pytest.mark.parametrize("tail", [b"", b"\r", b"\r\n", b"\r\n\r"])
def test_a_head_that_is_too_large_is_answered_by_its_address(tmp_path, size, tail):
    """One client with large fields must not end the connection, and so the limit for all others."""
    plane = Plane(tmp_path)
    lines = [b"X-Api-Key: one", b"A: " + b"a" * size + tail]
    target = b"/check/api?identify=header:x-api-key"
    data = head(b"192.0.2.1", *lines, target=target)[:-4].rstrip(b"\r\n") + END
    assert asked(plane, data, head(b"192.0.2.2", b"X-Api-Key: two", target=target)) == [ACCEPTED] * 2
    expected = b"192.0.2.1" if size >= MAX_HEAD_SIZE else b"=one"
    assert [verdict.identifier for verdict in plane.verdicts] == [expected, b"=two"]


async def test_an_end_that_is_none_where_a_large_head_is_cut_is_not_answered(tmp_path):
    """Otherwise the client would write the next head itself."""
    plane = Plane(tmp_path)
    forged = head(b"192.0.2.9")
    start = head(b"192.0.2.1")[:-2] + b"A: "
    filler = b"a" * (MAX_HEAD_SIZE - len(start) - 3) + b"\r\nB: " + b"b" * 100_000 + b"\n"
    async with started(plane):
        reader, writer = await plane.connect()
        for piece in (start + filler, b"\r\n" * 0 + forged.replace(END, b"\r\nC: ") + END):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.02)
        assert await reader.readuntil(END) == ACCEPTED
    assert [verdict.identifier for verdict in plane.verdicts] == [b"192.0.2.1"]


PIECES = st.sampled_from([
    b"GET ", *TARGETS, b"?identify=", b" HTTP/1.1", b"\r\n", b"\n", END, b"X-Headgate-Address: 192.0.2.1\r\n",
    b"Accept: application/json;q=\r\n", b"x: 1\r\n", b"%ff%00", b"\xff\x00",
])  # fmt: skip
ANYTHING = st.lists(st.one_of(PIECES, st.binary(max_size=20)), max_size=12).map(b"".join)
HEADS = st.builds(lambda target, more: head(b"192.0.2.1", more, target=target), st.sampled_from(TARGETS), ANYTHING)


class Transport:
    written = b""

    def write(self, data):
        self.written += data

    def abort(self):
        pass


@given(data=st.one_of(ANYTHING, HEADS), cuts=st.lists(st.integers(0, 200), max_size=5))
def test_any_bytes_in_any_pieces_are_answered_alike_or_their_connection_is_closed(data, cuts):
    def exchange(cuts):
        plane, transport = Plane(Path("none"), clock=lambda: 1000.0), Transport()
        plane.hold(100)
        connection = _Connection(plane.plane)
        connection.connection_made(transport)
        places = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
        for start, end in pairwise(places):
            connection.data_received(data[start:end])
        connection.connection_lost(None)
        assert plane.plane.details()["connections"] == 0
        return transport.written

    whole = exchange([])
    assert all(part.startswith(b"HTTP/1.1 ") for part in whole.split(END)[:-1])
    if data.endswith(END) and data.find(END) == len(data) - len(END):
        assert whole == exchange(cuts) != b""
