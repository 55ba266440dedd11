"""What the origin is sent: the same whether a head is passed on as it is or written line by line."""

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.config.tree import Bounds
from headgate.origin.gateway.forwarding import Peer, forwarded_head
from headgate.origin.gateway.grammar import parse_request

STRANGER = Peer("192.0.2.1", trusted=False, tls=False)

_FIELDS = st.lists(
    st.sampled_from(
        [
            b"Accept: */*",
            b"x-Two:  two words \t",
            b"X_Under: score",
            b"Empty:",
            b"Cookie: a=b; c=d",
            b"Hostess: not host",
            b"X-Host: neither",
            b"Via-Not: x",
            b"Keep-Alive: 5",
            b"X-Forwarded-For: 1.2.3.4",
            b"x_forwarded_proto: https",
            b"Connection: keep-alive",
        ]
    ),
    max_size=8,
)


def read(head: bytes) -> tuple[bytes, bytes, list[tuple[bytes, bytes]]]:
    machine = h11.Connection(h11.SERVER)
    machine.receive_data(head)
    event = machine.next_event()
    assert isinstance(event, h11.Request)
    return event.method, event.target, sorted((bytes(name), bytes(value)) for name, value in event.headers)


@given(_FIELDS, st.sampled_from([b"Host: a.example", b"host:a.example:80", b"HOST: [::1]"]), st.integers(0, 8))
def test_both_ways_of_writing_agree(fields: list[bytes], host: bytes, place: int) -> None:
    fields.insert(place, host)
    head = b"GET /p?q HTTP/1.1\r\n" + b"".join(field + b"\r\n" for field in fields) + b"\r\n"
    request, again = parse_request(head, Bounds()), parse_request(head, Bounds())
    again.simple = False
    found = read(forwarded_head(request, STRANGER, b"origin:1"))
    assert found == read(forwarded_head(again, STRANGER, b"origin:1"))
    names = [name for name, _ in found[2]]
    assert names.count(b"host") == names.count(b"x-forwarded-for") == names.count(b"x-forwarded-proto") == 1
    assert not {b"connection", b"keep-alive", b"x_forwarded_proto"} & set(names)
    kept = [field for field in fields if field.split(b":")[0].lower() in {b"accept", b"x_under", b"empty", b"x-two"}]
    assert len([name for name in names if name in {b"accept", b"x_under", b"empty", b"x-two"}]) == len(kept)


@pytest.mark.parametrize(
    ("address", "tls", "forwarded"),
    [
        ("192.0.2.1", False, b'for=192.0.2.1;host="a:80";proto=http'),
        ("2001:db8::1", True, b'for="[2001:db8::1]";host="a:80";proto=https'),
        ("", False, b'for=unknown;host="a:80";proto=http'),
    ],
)
def test_forwarded_is_written_as_rfc_7239_has_it(address: str, tls: bool, forwarded: bytes) -> None:
    lines = Peer(address, trusted=False, tls=tls).provenance(b"a:80", 1).split(b"\r\n")
    assert b"Forwarded: " + forwarded in lines
    assert (b"X-Forwarded-Proto: https" in lines) is tls


def test_one_connection_may_ask_for_several_hosts() -> None:
    peer = Peer("192.0.2.1", trusted=False, tls=False)
    for host in (b"a", b"b", b"a"):
        assert b"X-Forwarded-Host: %b\r\n" % host in peer.provenance(host, 1)
    assert b"Via: 1.0 headgate\r\n" in peer.provenance(b"a", 0)
