"""Laws of identifying: no input makes it raise, and none makes it name another client."""

from ipaddress import ip_address

from hypothesis import given
from hypothesis import strategies as st

from headgate.http.media_type import quality
from headgate.origin import RequestInfo, Route, Routes, client_address, header
from headgate.origin.request_info import address_in, forwarded_hops

PROXY = "10.0.0.1"
IDENTIFY = client_address(["10.0.0.0/8", "unix"], fields=["Forwarded", "X-Forwarded-For"])
FORWARDING = st.sampled_from([b"forwarded", b"x-forwarded-for"])
# Close to what is meant, so that more than the first character is reached.
PARTS = [b"for=", b"192.0.2.1", b"::1", b"10.0.0.9", b"by=", b"_x", *(bytes([sign]) for sign in b'",;=[]:\\ ')]
NEARLY = st.lists(st.sampled_from(PARTS) | st.binary(max_size=3)).map(b"".join)


@given(
    peer=st.text() | st.sampled_from([PROXY, "", "192.0.2.1"]),
    fields=st.lists(st.tuples(FORWARDING, NEARLY | st.binary())),
)
def test_no_bytes_raise_and_identifiers_fit_a_frame(peer: str, fields: list[tuple[bytes, bytes]]) -> None:
    head = RequestInfo(b"GET", b"/", b"", fields, peer)
    for identify in (IDENTIFY, header("forwarded"), header(b"x-forwarded-for", IDENTIFY)):
        identifier = identify(head)
        assert isinstance(identifier, bytes)
        assert 0 < len(identifier) <= 255


@given(
    hostile=NEARLY | st.binary(), name=FORWARDING, address=st.ip_addresses(v=4).filter(lambda ip: ip.packed[0] != 10)
)
def test_what_a_client_wrote_before_the_proxys_own_element_never_identifies_another_client(
    hostile: bytes, name: bytes, address: object
) -> None:
    """The proxy appends; the identifier is the address it appended, or its own when the whole is malformed."""
    real = str(address).encode()
    appended = (b"for=" + real) if name == b"forwarded" else real
    head = RequestInfo(b"GET", b"/", b"", [(name, hostile), (name, appended)], PROXY)
    assert IDENTIFY(head) in (real, PROXY.encode())


@given(st.ip_addresses(), st.none() | st.integers(0, 65535))
def test_an_address_comes_back_from_every_way_to_write_it(address: object, port: int | None) -> None:
    text = f"[{address}]" if ":" in str(address) else str(address)
    node = text if port is None else f"{text}:{port}"
    assert ip_address(address_in(node.encode())) == address
    assert [ip_address(hop) for hop in forwarded_hops(f'proto=http;for="{node}"'.encode())] == [address]


@given(st.binary(), st.binary(), st.lists(st.tuples(st.just(b"sec-purpose"), st.binary())))
def test_no_bytes_raise_in_matching(path: bytes, host: bytes, fields: list[tuple[bytes, bytes]]) -> None:
    routes = Routes([Route("a", path_prefix="/a", host="h"), Route("b", header="Sec-Purpose", value="prefetch")])
    assert routes.match(RequestInfo(b"GET", path, host, fields, "")) in ("a", "b", None)


@given(NEARLY | st.binary())
def test_no_bytes_raise_in_accept(accept: bytes) -> None:
    assert 0.0 <= quality(accept, b"text/plain") <= 1.0
