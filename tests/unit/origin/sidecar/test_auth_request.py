"""The data plane that nginx's auth_request asks, over a real unix socket."""

import asyncio
import math
import re
import time
from contextlib import asynccontextmanager, suppress

import pytest

from headgate.config.tree import Sidecar
from headgate.errors import ConfigurationError
from headgate.limit import DelayUntil, Domain, Gatekeeper, Rule
from headgate.origin import Rejections
from headgate.origin.sidecar import auth_request
from headgate.origin.sidecar.auth_request import AuthRequest
from headgate.origin.sidecar.auth_request_connections import MAX_HEAD_SIZE

START = b"GET /check/api HTTP/1.1\r\nHost: headgate-sidecar.invalid\r\n"
ACCEPTED = b"HTTP/1.1 204 No Content\r\n\r\n"
STORE = re.compile(rb"^HTTP/1.1 200 OK\r\nX-Accel-Redirect: (/headgate-store\?[0-9]+)\r\n")
FAILED = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"


def head(address=b"192.0.2.1", *fields, target=b"/check/api"):
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
        answer = await reader.readuntil(b"\r\n\r\n")
        if STORE.search(answer):  # nginx asks for the rejection itself, and stores it
            writer.write(b"GET %b HTTP/1.1\r\n\r\n" % STORE.search(answer)[1])
            answer = await reader.readuntil(b"\r\n\r\n")
        return answer


@asynccontextmanager
async def started(plane):
    await plane.plane.start()
    try:
        yield plane
    finally:
        await plane.close()


async def until(condition):
    """Wait until a condition is true; the test limits the time."""
    while True:
        if condition():
            return
        await asyncio.sleep(0.001)


def run(check, plane):
    """Run a check with a started plane."""

    async def main():
        async with started(plane), asyncio.timeout(10):
            return await check(plane)

    return asyncio.run(main())


def asked(plane, *heads):
    """Return the answers to some heads on one connection."""

    async def check(plane):
        connection = await plane.connect()
        return [await plane.ask(data, connection) for data in heads]

    return run(check, plane)


def fields_of(answer):
    return dict(line.split(b": ", 1) for line in answer.split(b"\r\n")[1:-2])


def test_accepted_requests_share_a_connection(tmp_path):
    plane = Plane(tmp_path)
    assert asked(plane, *[head()] * 5) == [ACCEPTED] * 5
    assert plane.plane.counters()["connections"] == 1
    assert plane.plane.counters()["requests"] == 5
    assert [(verdict.domain, verdict.identifier) for verdict in plane.verdicts] == [("api", b"192.0.2.1")] * 5


def test_connection_stays_open_where_nginx_asks_to_close_it(tmp_path):
    """nginx sends `close` where a proxy_set_header drops an inherited empty value; it need not close then."""
    plane = Plane(tmp_path)
    assert asked(plane, *[head(b"192.0.2.1", b"Connection: close")] * 3) == [ACCEPTED] * 3


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
        b"X-Accel-Expires": b"@1100",
        b"X-Headgate-Release": b"Thu, 01 Jan 1970 00:18:21 GMT",
        b"X-Headgate-Kept": b"Too many requests.",
    }


def test_rejection_is_a_problem_document_for_a_client_that_prefers_it(tmp_path):
    plane = Plane(tmp_path)
    plane.hold(100)
    (answer,) = asked(plane, head(b"192.0.2.1", b"Accept: application/json"))
    assert fields_of(answer)[b"X-Headgate-Body"].startswith(b'{"type":')


def test_policies_that_nginx_would_refuse_are_left_out(tmp_path):
    plane = Plane(tmp_path, rules=[f"{number}/h" for number in range(1, 500)])
    plane.hold(100)
    (answer,) = asked(plane, head())
    assert len(answer) < 4096
    assert b"retry-after" in answer
    assert b"ratelimit-policy" not in answer


@pytest.mark.parametrize(
    ("address", "identifier"),
    [
        (b"192.0.2.1", b"192.0.2.1"),
        (b"2001:db8::1:2", b"2001:db8::/64"),
        (b"::ffff:192.0.2.1", b"192.0.2.1"),
        (b"unix:", b"unknown"),
    ],
)
def test_addresses_are_identifiers_as_in_a_gate(tmp_path, address, identifier):
    plane = Plane(tmp_path)
    assert asked(plane, head(address)) == [ACCEPTED]
    assert plane.verdicts[0].identifier == identifier


@pytest.mark.parametrize(
    ("lines", "identifier"),
    [
        ([b"X-Api-Key: one"], b"one"),
        ([b"x-API-key:\t one \t"], b"one"),
        ([b'X-Api-Key: "; \\ $x %00 {}'], b'"; \\ $x %00 {}'),
        ([b"X-Api-Key: \x01\x7f\xff"], b"\x01\x7f\xff"),
        ([b"X-Api-Key: " + b"a" * 255], b"a" * 255),
        ([b"X-Api-Key: " + b"a" * 256], b"sha256:02d7160d77e18c6447be80c2e355c7ed4388545271702c50253b0914c65ce5fe"),
        ([b"X-Api-Key: one", b"X-Api-Key: two"], b"192.0.2.1"),
        ([b"X-Api-Key:"], b"192.0.2.1"),
        ([b"X_Api_Key: one"], b"192.0.2.1"),
        ([b"X-Api-Key-2: one"], b"192.0.2.1"),
        ([], b"192.0.2.1"),
        ([b"Cookie: \x02 not a value of HTTP", b"X-Api-Key: one"], b"one"),
    ],
)
@pytest.mark.parametrize("named_by", ["sidecar", "nginx"])
def test_header_identifies(tmp_path, lines, identifier, named_by):
    plane = Plane(tmp_path, **({"identify": "header:X-Api-Key"} if named_by == "sidecar" else {}))
    target = b"/check/api" + (b"?identify=header:x-api-key" if named_by == "nginx" else b"")
    assert asked(plane, head(b"192.0.2.1", *lines, target=target)) == [ACCEPTED]
    assert plane.verdicts[0].identifier == identifier


def test_nginx_overrides_the_method_of_the_sidecar(tmp_path):
    plane = Plane(tmp_path, identify="header:X-Api-Key")
    assert asked(plane, head(b"192.0.2.1", b"X-Api-Key: one", target=b"/check/api?identify=client-address")) == [
        ACCEPTED
    ]
    assert plane.verdicts[0].identifier == b"192.0.2.1"


def test_prefix_of_ipv6_addresses(tmp_path):
    plane = Plane(tmp_path, ipv6_prefix=128)
    assert asked(plane, head(b"2001:db8::1")) == [ACCEPTED]
    assert plane.verdicts[0].identifier == b"2001:db8::1"


def test_domain_is_percent_encoded(tmp_path):
    plane = Plane(tmp_path, domains=("api", 'a b/"é'))
    assert asked(plane, head(target=b"/check/a%20b%2F%22%C3%A9")) == [ACCEPTED]
    assert plane.verdicts[0].domain == 'a b/"é'


def test_unknown_domain_is_accepted_and_reported_once(tmp_path):
    plane = Plane(tmp_path)
    assert asked(plane, *(head(target=b"/check/other%d" % number) for number in range(3))) == [FAILED] * 3
    assert plane.verdicts == []
    assert plane.lines == ["nginx asks about the domain 'other0', which is not limited; add it with --domain"]
    assert plane.plane.counters()["malformed"] == 3


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\r\n\r\n",
        b"\0\xff\r\n\r\n",
        b"GET /check/ HTTP/1.1\r\nX-Headgate-Address: 192.0.2.1\r\n\r\n",
        b"GET /check/api/x HTTP/1.1\r\nX-Headgate-Address: 192.0.2.1\r\n\r\n",
        b"GET /check/api?identify=x HTTP/1.1\r\nX-Headgate-Address: 192.0.2.1\r\n\r\n",
        b"GET /check/api?identify=header:%FF HTTP/1.1\r\nX-Headgate-Address: 192.0.2.1\r\n\r\n",
        b"GET /check/%FF%00 HTTP/1.1\r\nX-Headgate-Address: 192.0.2.1\r\n\r\n",
        b"GET /check/api" + b"a" * 5000 + b" HTTP/1.1\r\n\r\n",
        b"POST/check/api HTTP/1.1\r\nX-Headgate-Address: 192.0.2.1\r\n\r\n",
        b"XXX /check/api HTTP/1.1\r\nX-Headgate-Address: 192.0.2.1\r\n\r\n",
        b"GET /check/api HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /headgate-delay?-1 HTTP/1.1\r\n\r\n",
        b"GET /headgate-delay?9999999999999999 HTTP/1.1\r\n\r\n",
    ],
)
def test_malformed_requests_are_counted_and_nginx_accepts_them(tmp_path, data):
    plane = Plane(tmp_path)
    assert asked(plane, data, head()) == [FAILED, ACCEPTED]
    assert plane.plane.counters()["malformed"] == 1
    assert len(plane.verdicts) == 1


def test_a_missing_address_does_not_make_all_clients_one(tmp_path):
    plane = Plane(tmp_path)
    plane.hold(100, b"unknown")
    assert asked(plane, START + b"\r\n") == [FAILED]


def test_delayed_request_is_redirected_and_accepted_at_its_release(tmp_path):
    plane = Plane(tmp_path)

    async def check(plane):
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

    run(check, plane)
    assert [verdict.status.value for verdict in plane.verdicts] == ["DELAYED"]


def test_delay_that_is_longer_than_the_timeout_of_nginx_is_asked_for_again(tmp_path, monkeypatch):
    monkeypatch.setattr(auth_request, "_DELAY_PART", 0.1)
    plane = Plane(tmp_path)

    async def check(plane):
        plane.hold(0.35)
        release = plane.gatekeeper.held("api", b"192.0.2.1", now=time.time())
        answer = redirection = await plane.ask()
        asked = 0
        while answer == redirection:
            answer = await plane.ask(head(target=fields_of(answer)[b"X-Accel-Redirect"]))
            asked += 1
        assert answer == ACCEPTED
        assert time.time() >= release
        assert 2 <= asked <= 4

    run(check, plane)
    assert [verdict.status.value for verdict in plane.verdicts] == ["DELAYED"]


def test_longest_delay_is_limited(tmp_path):
    with pytest.raises(ConfigurationError, match=r"sidecar.max_delay: nginx without Lua .* at most 40 s, got 40.5"):
        Plane(tmp_path, max_delay=40.5)


def test_client_that_leaves_frees_its_slot(tmp_path):
    plane = Plane(tmp_path)

    async def check(plane):
        plane.hold(0.9)
        uri = fields_of(await plane.ask())[b"X-Accel-Redirect"]
        _, writer = await plane.connect()
        writer.write(head(target=uri))
        await until(lambda: plane.plane.counters()["requests"] == 2)
        assert plane.gatekeeper.delayed == 1
        writer.close()
        await until(lambda: not plane.plane.details()["delayed"])

    run(check, plane)
    assert plane.gatekeeper.delayed == 0
    assert plane.plane.counters()["disconnected"] == 1


def test_delay_has_one_connection(tmp_path):
    plane = Plane(tmp_path)

    async def check(plane):
        plane.hold(0.3)
        uri = fields_of(await plane.ask())[b"X-Accel-Redirect"]
        delay = head(target=uri)
        first = asyncio.create_task(plane.ask(delay))
        await asyncio.sleep(0.05)
        assert await plane.ask(delay) == FAILED
        assert await first == ACCEPTED

    run(check, plane)


def test_close_accepts_delayed_requests_and_removes_the_socket(tmp_path):
    plane = Plane(tmp_path)

    async def check():
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

    asyncio.run(check())
    assert not (tmp_path / "s").exists()
    assert plane.plane.unready() != ""


class Clock:
    now = 1000.5

    def __call__(self):
        return self.now


def test_storing_ends_with_the_last_second_of_the_hold_and_is_not_repeated(tmp_path):
    """nginx uses an answer during the whole of the second in which it expires."""
    clock = Clock()
    plane = Plane(tmp_path, clock=clock)

    async def check(plane):
        async def last(address=b"192.0.2.1"):
            answer = await plane.ask(head(address))
            return fields_of(answer).get(b"X-Accel-Expires")

        plane.hold(10)  # until 1010.5
        assert await last() == b"@1010"
        assert await last() is None
        clock.now = 1001.0
        plane.hold(10.4)  # until 1011.4
        assert await last() == b"@1011"
        plane.hold(10.5, b"2001:db8::/64")
        assert [await last(b"2001:db8::1"), await last(b"2001:db8::2"), await last(b"2001:db8::2")] == [
            b"@1011",
            b"@1011",  # another key of nginx's cache
            None,
        ]
        plane.hold(math.inf, b"192.0.2.9")
        assert await last(b"192.0.2.9") == b"@%d" % (1000 + 31 * 86_400)

    run(check, plane)


def test_a_hold_of_less_than_a_second_is_not_stored(tmp_path):
    plane = Plane(tmp_path, clock=lambda: 1000.5)
    plane.gatekeeper.max_delay = 0.0
    plane.hold(0.9)
    (answer,) = asked(plane, head())
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"X-Accel-Expires" not in answer


def test_an_identifier_that_the_cache_key_of_nginx_does_not_have_is_not_stored(tmp_path):
    plane = Plane(tmp_path, identify="header:X-Api-Key")
    plane.hold(100, b"one")
    asked_one = [b"X-Api-Key: one"]
    unnamed, named = asked(
        plane,
        head(b"192.0.2.1", *asked_one),
        head(b"192.0.2.1", *asked_one, target=b"/check/api?identify=header:x-api-key"),
    )
    assert b"X-Accel-Expires" not in unnamed
    assert b"X-Accel-Expires" in named


def test_what_is_stored_is_remembered_within_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(auth_request, "_MAX_STORED", 3)
    plane = Plane(tmp_path)
    addresses = [b"192.0.2.%d" % number for number in range(20)]
    for address in addresses:
        plane.hold(100, address)
    asked(plane, *map(head, addresses))
    assert len(plane.plane._stored) <= 3


def test_rejections_to_be_stored_are_kept_within_a_bound(tmp_path, monkeypatch):
    """nginx asks twice if it cannot store one; the one that is asked for last is always there."""
    monkeypatch.setattr(auth_request, "_MAX_REJECTED", 3)
    plane = Plane(tmp_path)
    addresses = [b"192.0.2.%d" % number for number in range(20)]
    for address in addresses:
        plane.hold(100, address)
    stored = [b"GET /headgate-store?%d HTTP/1.1\r\n\r\n" % number for number in range(1, 21)]
    answers = asked(plane, *map(head, addresses), *stored)
    assert all(b"X-Accel-Expires" in answer for answer in answers[:20])
    answers = answers[20:]
    assert answers[:17] == [FAILED] * 17
    assert all(answer.startswith(b"HTTP/1.1 403 ") for answer in answers[17:])


def test_invalid_method_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="invalid identify"):
        Plane(tmp_path, identify="cookie")


def test_a_head_may_come_in_pieces(tmp_path):
    plane = Plane(tmp_path)

    async def check(plane):
        reader, writer = await plane.connect()
        for number in range(len(head())):
            writer.write(head()[number : number + 1])
            await writer.drain()
            await asyncio.sleep(0)
        assert await reader.readuntil(b"\r\n\r\n") == ACCEPTED
        assert await plane.ask(head(), (reader, writer)) == ACCEPTED

    run(check, plane)


@pytest.mark.parametrize(
    "data", [b"a" * (MAX_HEAD_SIZE + 1), head(b"192.0.2.1", b"A: " + b"a" * MAX_HEAD_SIZE), head() * 2, head() + b"x"]
)
def test_a_connection_with_too_many_bytes_is_closed(tmp_path, data):
    plane = Plane(tmp_path)

    async def check(plane):
        reader, writer = await plane.connect()
        writer.write(data)
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        assert await plane.ask() == ACCEPTED

    run(check, plane)
    assert plane.plane.counters()["dropped_connections"] == 1
