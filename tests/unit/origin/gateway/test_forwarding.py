"""The heads that are forwarded."""

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.http.h1 import (
    RequestHead,
    RequestLimits,
    parse_request_head,
    parse_response_head,
    parse_usual_request_head,
)
from headgate.http.h1.request import parse_general_request_head
from headgate.origin import RequestInfo, client_address
from headgate.origin.gateway import forwarding
from headgate.origin.gateway.forwarding import (
    ClientInfo,
    forwarded_request_head,
    forwarded_response_lines,
    forwarded_trailers,
)
from headgate.origin.identify import ClientAddress
from headgate.origin.request_info import forwarded_hops, x_forwarded_for_hops

LIMITS = RequestLimits()
PROXIES = client_address(["10.0.0.0/8"])
UNTRUSTED = ClientInfo("192.0.2.1", proxies=PROXIES, tls=False)
TRUSTED = ClientInfo("10.0.0.1", proxies=PROXIES, tls=False)

_FIELDS = st.lists(
    st.sampled_from([
        b"Accept: */*", b"x-Two:  two words \t", b"X_Under: score", b"Empty:", b"Cookie: a=b; c=d",
        b"Hostess: not host", b"X-Host: neither", b"Via-Not: x", b"Keep-Alive: 5", b"X-Forwarded-For: 1.2.3.4",
        b"x_forwarded_proto: https", b"Connection: keep-alive",
    ]),
    max_size=8,
)  # fmt: skip


def read(head: bytes) -> tuple[bytes, bytes, list[tuple[bytes, bytes]]]:
    """Read a head with h11."""
    machine = h11.Connection(h11.SERVER)
    machine.receive_data(head)
    event = machine.next_event()
    assert isinstance(event, h11.Request)
    return event.method, event.target, sorted((bytes(name), bytes(value)) for name, value in event.headers)


def forwarded(request: RequestHead, client: ClientInfo, authority: bytes = b"origin:1") -> bytes:
    """Return the forwarded head without its X-Request-Id, which it has once."""
    head = forwarded_request_head(request, client, authority, b"0123")
    assert head.lower().count(b"\nx-request-id:") == 1
    return head.replace(b"X-Request-Id: 0123\r\n", b"")


def request(*lines: bytes) -> RequestHead:
    return parse_request_head(b"\r\n".join([b"GET /p?q HTTP/1.1", *lines]) + b"\r\n\r\n", LIMITS)


def fields_sent(client: ClientInfo, *lines: bytes) -> dict[bytes, bytes]:
    """Return the fields of the forwarded head; each must occur once."""
    fields = read(forwarded(request(b"Host: a", *lines), client))[2]
    assert len({name for name, _ in fields}) == len(fields)
    return dict(fields)


@given(_FIELDS, st.sampled_from([b"Host: a.example", b"host:a.example:80", b"HOST: [::1]"]), st.integers(0, 8))
def test_a_head_is_forwarded_alike_whole_and_line_by_line(fields: list[bytes], host: bytes, place: int) -> None:
    fields.insert(place, host)
    head = b"GET /p?q HTTP/1.1\r\n" + b"".join(field + b"\r\n" for field in fields) + b"\r\n"
    whole, by_line = parse_request_head(head, LIMITS), parse_general_request_head(head, LIMITS)
    assert not by_line.forwardable
    found = read(forwarded(whole, UNTRUSTED))
    assert found == read(forwarded(by_line, UNTRUSTED))
    names = [name for name, _ in found[2]]
    assert names.count(b"host") == names.count(b"x-forwarded-for") == names.count(b"x-forwarded-proto") == 1
    assert not {b"connection", b"keep-alive", b"x_forwarded_proto"} & set(names)
    kept = [field for field in fields if field.split(b":")[0].lower() in {b"accept", b"x_under", b"empty", b"x-two"}]
    assert len([name for name in names if name in {b"accept", b"x_under", b"empty", b"x-two"}]) == len(kept)


def test_a_field_that_is_not_forwarded_as_it_came_makes_a_head_unusual() -> None:
    """A usual head is forwarded by slicing it, so `NOTEWORTHY_FIELDS` must have every name that is treated here."""
    names = forwarding._DROPPED_FROM_REQUESTS | forwarding.CONTINUED | {b"x-real-ip", b"x-forwarded-port"}
    for name in names:
        for spelling in (name, name.title(), name.replace(b"-", b"_"), name.upper()):
            head = b"GET / HTTP/1.1\r\nHost: a\r\n%b: x\r\n\r\n" % spelling
            assert parse_usual_request_head(head, LIMITS) is None, spelling


@pytest.mark.parametrize(
    ("address", "tls", "forwarded"),
    [
        ("192.0.2.1", False, b'for=192.0.2.1;host="a:80";proto=http'),
        ("2001:db8::1", True, b'for="[2001:db8::1]";host="a:80";proto=https'),
        ("", False, b'for=unknown;host="a:80";proto=http'),
    ],
)
def test_forwarded_is_written_as_in_rfc_7239(address: str, tls: bool, forwarded: bytes) -> None:
    lines = ClientInfo(address, proxies=PROXIES, tls=tls).forwarding_lines(b"a:80", 1, {}, []).split(b"\r\n")
    assert b"Forwarded: " + forwarded in lines
    assert (b"X-Forwarded-Proto: https" in lines) is tls


def test_one_connection_may_request_several_hosts() -> None:
    client = ClientInfo("192.0.2.1", proxies=PROXIES, tls=False)
    for host in (b"a", b"b", b"a"):
        head = parse_request_head(b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % host, RequestLimits())
        assert b"X-Forwarded-Host: %b\r\n" % host in forwarded(head, client, b"")
    assert b"Via: 1.0 headgate\r\n" in client.forwarding_lines(b"a", 0, {}, [])


def test_forwarding_fields_of_an_untrusted_client_are_replaced() -> None:
    sent = fields_sent(
        UNTRUSTED, b"X-Forwarded-For: 9.9.9.9", b"Forwarded: for=9.9.9.9", b"X-Forwarded-Proto: https",
        b"X-Forwarded-Host: b", b"X-Forwarded-Port: 1", b"X-Real-IP: 9.9.9.9", b"Via: 1.1 x",
    )  # fmt: skip
    assert sent == {
        b"host": b"a",
        b"x-forwarded-for": b"192.0.2.1",
        b"forwarded": b'for=192.0.2.1;host="a";proto=http',
        b"x-forwarded-proto": b"http",
        b"x-forwarded-host": b"a",
        b"via": b"1.1 headgate",
    }


def test_forwarding_fields_of_a_trusted_proxy_are_continued() -> None:
    sent = fields_sent(
        TRUSTED, b"X-Forwarded-For: 192.0.2.7", b"X-Forwarded-Proto: http, HTTPS",
        b"X-Forwarded-Host: b", b"X-Real-IP: 9.9.9.9", b"Via: 1.1 x",
    )  # fmt: skip
    assert sent == {
        b"host": b"a",
        b"x-forwarded-for": b"192.0.2.7, 10.0.0.1",
        b"forwarded": b'for=192.0.2.7;host="b";proto=https, for=10.0.0.1;host="a";proto=http',
        b"x-forwarded-proto": b"https",
        b"x-forwarded-host": b"b",
        b"x-real-ip": b"9.9.9.9",
        b"via": b"1.1 x, 1.1 headgate",
    }


BOTH = client_address(["10.0.0.0/8"], fields=["Forwarded", "X-Forwarded-For"])
FORWARDED = client_address(["10.0.0.0/8"], fields=["Forwarded"])
FORGED = b"X-Forwarded-For: 9.9.9.9, 192.0.2.7:81, 10.0.0.9"


@pytest.mark.parametrize(
    ("proxies", "lines", "chain"),
    [
        (PROXIES, (), ()),
        # What stands before the client, or in the other field, may be the client's.
        (PROXIES, (FORGED, b"Forwarded: for=9.9.9.9"), ("192.0.2.7", "10.0.0.9")),
        (PROXIES, (b"X-Forwarded-For: 9.9.9.9", b"X-Forwarded-For: [2001:db8::1]:80"), ("2001:db8::1",)),
        (PROXIES, (b"X-Forwarded-For: 192.0.2.7, unknown, 10.0.0.9",), ("10.0.0.9",)),
        (PROXIES, (b"Forwarded: for=9.9.9.9",), ()),
        (FORWARDED, (FORGED, b"Forwarded: for=192.0.2.7"), ("192.0.2.7",)),
        (BOTH, (b"X-Forwarded-For: 192.0.2.7", b'Forwarded: for="192.0.2.7:80"'), ("192.0.2.7",)),
        (BOTH, (b"X-Forwarded-For: 192.0.2.7", b"Forwarded: for=9.9.9.9"), ()),
    ],
)
def test_both_forwarding_fields_have_the_one_chain_that_identifies_the_client(
    proxies: ClientAddress, lines: tuple[bytes, ...], chain: tuple[str, ...]
) -> None:
    sent = fields_sent(ClientInfo("10.0.0.1", proxies=proxies, tls=False), *lines)
    assert list(x_forwarded_for_hops(sent[b"x-forwarded-for"]))[::-1] == [*chain, "10.0.0.1"]
    assert list(forwarded_hops(sent[b"forwarded"]))[::-1] == [*chain, "10.0.0.1"]
    came = RequestInfo(b"GET", b"/", b"a", list(request(b"Host: a", *lines).fields), "10.0.0.1")
    onward = RequestInfo(b"GET", b"/", b"a", list(sent.items()), "10.0.0.2")
    assert BOTH(onward) == PROXIES(onward) == proxies(came)


@pytest.mark.parametrize(
    ("lines", "proto", "host"),
    [
        ((), b"http", b"a"),
        ((b"X-Forwarded-Proto: HTTPS", b"X-Forwarded-Host: [2001:db8::1]:443"), b"https", b"[2001:db8::1]:443"),
        ((b"X-Forwarded-Proto: wss",), b"wss", b"a"),
        # Of several, only the last is certainly the proxy's: what stands before it may be a client's.
        ((b"X-Forwarded-Proto: http", b"X-Forwarded-Proto: https"), b"https", b"a"),
        ((b"X-Forwarded-Proto: http, https", b"X-Forwarded-Host: forged, other"), b"https", b"other"),
        # What is not a scheme or a host is replaced.
        ((b"X-Forwarded-Proto: https,", b"X-Forwarded-Host: other, "), b"http", b"a"),
        ((b"X-Forwarded-Proto: gopher", b"X-Forwarded-Host: a b"), b"http", b"a"),
        ((b"X-Forwarded-Proto:", b"X-Forwarded-Host: user@other"), b"http", b"a"),
        ((b"X_Forwarded_Proto: https", b"X_Forwarded_Host: other"), b"http", b"a"),
    ],
)
def test_a_trusted_proxys_scheme_and_host_are_forwarded_as_one_value(
    lines: tuple[bytes, ...], proto: bytes, host: bytes
) -> None:
    sent = fields_sent(TRUSTED, *lines)
    assert (sent[b"x-forwarded-proto"], sent[b"x-forwarded-host"]) == (proto, host)


def test_hop_by_hop_fields_are_not_forwarded() -> None:
    sent = fields_sent(
        UNTRUSTED, b"Connection: keep-alive, X-Mine, Host, Content-Length", b"X-Mine: 1", b"Keep-Alive: timeout=5",
        b"Proxy-Connection: keep-alive", b"TE: gzip", b"Upgrade: h2c", b"Proxy: evil", b"Trailer: X-After",
        b"X-Kept: 2", b"Content-Length: 2",
    )  # fmt: skip
    forwarding = {b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"via"}
    assert sent.keys() == {b"host", b"x-kept", b"content-length"} | forwarding


def test_framing_expectation_and_upgrade_are_written_anew() -> None:
    for lines, written in (
        ((b"Content-Length: 5", b"Expect: 100-continue"), b"Content-Length: 5\r\nExpect: 100-continue\r\n"),
        ((b"Transfer-Encoding: Chunked",), b"Transfer-Encoding: chunked\r\n"),
        ((b"Connection: upgrade", b"Upgrade: websocket, x"), b"Connection: Upgrade\r\nUpgrade: websocket\r\n"),
        ((b"Connection: TE", b"TE: trailers, gzip"), b"Connection: TE\r\nTE: trailers\r\n"),
        ((b"Connection: Upgrade", b"Upgrade: h2c"), b""),
    ):
        head = forwarded(request(b"Host: a", *lines), UNTRUSTED)
        assert head.startswith(b"GET /p?q HTTP/1.1\r\nHost: a\r\n" + written + b"X-Forwarded-Proto"), lines


def test_a_missing_host_is_replaced_by_the_origins_authority() -> None:
    old = parse_request_head(b"GET / HTTP/1.0\r\n\r\n", LIMITS)
    assert forwarded(old, UNTRUSTED).startswith(b"GET / HTTP/1.1\r\nHost: origin:1\r\n")


def test_fields_of_the_origins_hop_are_dropped_and_date_is_not() -> None:
    response = parse_response_head(
        b"HTTP/1.0 200 OK\r\nDate: d\r\nConnection: date, x-mine, content-length\r\nX-Mine: 1\r\nKeep-Alive: 5\r\n"
        b"Set-Cookie: a=b\r\nSet-Cookie: c=d\r\nContent-Length: 0\r\n\r\n"
    )
    assert forwarded_response_lines(response) == b"HTTP/1.1 200 OK\r\nDate: d\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\n"


def test_trailers_that_would_change_the_message_are_dropped() -> None:
    trailers = [
        (b"x-checksum", b"1"),
        (b"content-length", b"5"),
        (b"transfer-encoding", b"chunked"),
        (b"set-cookie", b"a"),
    ]
    assert forwarded_trailers(trailers) == b"x-checksum: 1\r\n"
