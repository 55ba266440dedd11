import pytest

from headgate.errors import ConfigurationError
from headgate.limit import Domain
from headgate.origin import RequestInfo, client_address, header, parse_identify
from headgate.origin.identify import UNKNOWN, AddressSet, identify_by

PROXIES = ("10.0.0.0/8", "2001:db8:aaaa::/48")


def request_info(peer: str = "192.0.2.1", **fields: bytes) -> RequestInfo:
    return RequestInfo(
        b"GET", b"/", b"", [(name.replace("_", "-").encode(), value) for name, value in fields.items()], peer
    )


@pytest.mark.parametrize(
    ("peer", "identifier"),
    [
        ("192.0.2.1", b"192.0.2.1"),
        ("::ffff:192.0.2.1", b"192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", b"2001:db8:1:2::/64"),
        ("fe80::1%eth0", b"fe80::/64"),
        ("", UNKNOWN),
        ("/run/app.sock", UNKNOWN),
        ("testclient", UNKNOWN),
        ("192.0.2.999", UNKNOWN),
        ("\u0661.2.3.4", UNKNOWN),
    ],
)
def test_a_peer_is_its_address_or_network(peer: str, identifier: bytes) -> None:
    assert client_address()(request_info(peer)) == identifier
    assert client_address().per_connection(peer) == identifier


def test_the_prefix_of_ipv6_is_configurable() -> None:
    assert client_address(ipv6_prefix=48)(request_info("2001:db8:1:2::1")) == b"2001:db8:1::/48"
    assert client_address(ipv6_prefix=128)(request_info("2001:db8:1:2::1")) == b"2001:db8:1:2::1"
    assert client_address(ipv6_prefix=128)(request_info("fe80::1%eth0")) == b"fe80::1"


@pytest.mark.parametrize("field", ["forwarded", "x_forwarded_for"])
def test_fields_of_untrusted_peers_are_ignored(field: str) -> None:
    value = b"for=9.9.9.9" if field == "forwarded" else b"9.9.9.9"
    assert client_address(PROXIES)(request_info("192.0.2.1", **{field: value})) == b"192.0.2.1"
    assert client_address()(request_info("10.0.0.1", **{field: value})) == b"10.0.0.1"


@pytest.mark.parametrize(
    ("value", "identifier"),
    [
        (b"192.0.2.7", b"192.0.2.7"),
        # What an untrusted client wrote stands left of the first address that is not a proxy's.
        (b"9.9.9.9, 192.0.2.7", b"192.0.2.7"),
        (b"9.9.9.9, 192.0.2.7, 10.2.2.2, ::ffff:10.3.3.3", b"192.0.2.7"),
        (b"192.0.2.7, 2001:db8:aaaa::5", b"192.0.2.7"),
        (b"192.0.2.7:1234", b"192.0.2.7"),
        (b"[2001:db8::7]:1234", b"2001:db8::/64"),
        # All of them are proxies: the farthest asked.
        (b"10.0.0.9, 10.0.0.8", b"10.0.0.9"),
        # A hop without an address: the nearest known one.
        (b"192.0.2.7, unknown", b"10.0.0.1"),
        (b"192.0.2.7, garbage, 10.0.0.8", b"10.0.0.8"),
        (b"192.0.2.7, 300.1.1.1", b"10.0.0.1"),
        (b"", b"10.0.0.1"),
        (b", ,", b"10.0.0.1"),
        (b"\xff\x00", b"10.0.0.1"),
    ],
)
def test_a_proxys_chain_is_walked_from_the_right(value: bytes, identifier: bytes) -> None:
    identify = client_address(PROXIES, fields=["Forwarded", "X-Forwarded-For"])
    assert identify(request_info("10.0.0.1", x_forwarded_for=value)) == identifier
    as_forwarded = b", ".join(b'for="' + member.strip() + b'"' for member in value.split(b",") if member.strip())
    assert identify(request_info("10.0.0.1", forwarded=as_forwarded)) == identifier


def test_an_obfuscated_name_is_not_an_identifier() -> None:
    identify = client_address(PROXIES, fields=["Forwarded"])
    assert identify(request_info("10.0.0.1", forwarded=b"for=192.0.2.7, for=_a1b2c3")) == b"10.0.0.1"


def test_two_fields_that_disagree_are_both_ignored() -> None:
    """A proxy that writes one field passes the other on as its client sent it; which is which is unknown."""
    identify = client_address(PROXIES, fields=["Forwarded", "X-Forwarded-For"])
    assert identify(request_info("10.0.0.1", forwarded=b"for=9.9.9.9", x_forwarded_for=b"192.0.2.7")) == b"10.0.0.1"
    assert identify(request_info("10.0.0.1", forwarded=b"for=192.0.2.7", x_forwarded_for=b"192.0.2.7")) == b"192.0.2.7"
    only = client_address(PROXIES)
    assert only(request_info("10.0.0.1", forwarded=b"for=9.9.9.9", x_forwarded_for=b"192.0.2.7")) == b"192.0.2.7"


def test_a_unix_socket_can_be_trusted() -> None:
    request = request_info("", x_forwarded_for=b"192.0.2.7")
    assert client_address(["unix"])(request) == b"192.0.2.7"
    assert client_address(PROXIES)(request) == UNKNOWN


def test_only_a_trusted_peer_needs_the_fields_of_each_request() -> None:
    identify = client_address(PROXIES)
    assert identify.per_connection("192.0.2.1") == b"192.0.2.1"
    assert identify.per_connection("10.0.0.1") is None
    assert identify.per_connection("2001:db8:aaaa::1") is None
    assert client_address(PROXIES, fields=[]).per_connection("10.0.0.1") == b"10.0.0.1"
    assert header("X-Api-Key").per_connection("192.0.2.1") is None


def test_a_mapped_network_is_the_ipv4_network_inside() -> None:
    assert client_address(["::ffff:10.0.0.0/104"]).per_connection("10.1.2.3") is None


@pytest.mark.parametrize("value", [None, b"", b"  "])
def test_a_missing_or_empty_header_falls_back(value: bytes | None) -> None:
    fields = {} if value is None else {"x_api_key": value}
    assert header(b"X-Api-Key")(request_info("192.0.2.1", **fields)) == b"192.0.2.1"
    assert (
        header("X-Api-Key", client_address(ipv6_prefix=48))(request_info("2001:db8::1", **fields)) == b"2001:db8::/48"
    )


@pytest.mark.parametrize("second", [b"junk", b"", b"alice"])
def test_a_repeated_header_falls_back(second: bytes) -> None:
    """Applications read one of the lines; joined, each second line would make a fresh identifier of one customer."""
    for lines in ([b"alice", second], [second, b"alice"]):
        repeated = RequestInfo(b"GET", b"/", b"a", [(b"x-api-key", line) for line in lines], "192.0.2.1")
        assert header("X-Api-Key")(repeated) == b"192.0.2.1"
        assert header("X-Other", header("X-Api-Key"))(repeated) == b"192.0.2.1"


def test_a_header_identifies_by_its_bytes() -> None:
    assert header("X-Api-Key")(request_info(x_api_key=b" \xff\xfe ")) == b"=\xff\xfe"


@pytest.mark.parametrize("value", [b"Bearer  Tok", b"bearer Tok", b"BEARER \t Tok "])
def test_the_scheme_of_authorization_has_one_spelling(value: bytes) -> None:
    """RFC 9110, section 11.4: a client has one limit, however it writes the scheme."""
    assert header("Authorization")(request_info(authorization=value)) == b"=bearer Tok"
    assert header("X-Api-Key")(request_info(x_api_key=value)) == b"=" + value.strip()


def test_no_value_of_a_header_is_the_identifier_of_an_address() -> None:
    domain = Domain("d", exempt=("192.0.2.0/24", "192.0.2.9", "unknown", "Bearer Tok"))
    for address in (b"192.0.2.77", b"192.0.2.9", b"192.0.2.0/24", b"2001:db8::/64"):
        identifier = header("X-Api-Key")(request_info(x_api_key=address))
        assert identifier != client_address()(request_info(address.decode()))
        assert not domain.exempts(identifier)
    assert domain.exempts(header("Authorization")(request_info(authorization=b"BEARER Tok")))
    assert domain.exempts(header("X-Api-Key")(request_info(x_api_key=b"Bearer Tok")))


def test_an_identifier_too_long_for_a_frame_is_its_digest() -> None:
    assert header("X-Api-Key")(request_info(x_api_key=b"x" * 254)) == b"=" + b"x" * 254
    long = header("X-Api-Key")(request_info(x_api_key=b"x" * 255))
    assert long.startswith(b"sha256:")
    assert len(long) == 71
    assert long != header("X-Api-Key")(request_info(x_api_key=b"y" * 256))


def test_configured_texts_are_read() -> None:
    request = request_info("10.0.0.1", x_forwarded_for=b"192.0.2.7", x_api_key=b"k")
    assert parse_identify("client-address", PROXIES)(request) == b"192.0.2.7"
    assert parse_identify("header:X-Api-Key")(request) == b"=k"
    assert parse_identify("header:X-Other", PROXIES)(request) == b"192.0.2.7"
    assert parse_identify("client-address", ipv6_prefix=32)(request_info("2001:db8::1")) == b"2001:db8::/32"
    both = request_info("10.0.0.1", x_forwarded_for=b"192.0.2.7", forwarded=b"for=9.9.9.9")
    for way in ("client-address", "header:X-Api-Key"):
        assert parse_identify(way, PROXIES)(both) == b"192.0.2.7"
        assert parse_identify(way, PROXIES, fields=["Forwarded"])(both) == b"9.9.9.9"


def test_unknown_texts_are_refused_and_quoted() -> None:
    headers = ("header" + rest for rest in ("", ":", ": ", ":Ü", ":X Y", ":X\r\nY", ":X:"))
    for text in ("", "cookie:x", "client-address:1", *headers):
        with pytest.raises(ConfigurationError) as caught:
            parse_identify(text)
        assert repr(text) in str(caught.value)


def test_name_that_no_field_can_have_is_refused() -> None:
    for name in ("X-Api-Key: ", "", b"X Y", 3):
        with pytest.raises(ConfigurationError, match=r"^invalid header name .*; expected one such as 'X-Api-Key'"):
            header(name)  # type: ignore[arg-type]  # the point of the test


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"trusted": ["10.0.0.0/40"]}, "10.0.0.0/40"),
        ({"trusted": ["proxy.example"]}, "proxy.example"),
        ({"ipv6_prefix": 0}, "ipv6_prefix must be from 1 to 128, got 0"),
        ({"ipv6_prefix": 129}, "ipv6_prefix must be from 1 to 128, got 129"),
        ({"fields": ["X-Real-IP"]}, "x-real-ip"),
    ],
)
def test_invalid_arguments_are_refused(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        client_address(**arguments)  # type: ignore[arg-type]  # the point of the test


@pytest.mark.parametrize(
    ("methods", "path", "fields", "identifier"),
    [
        ("client-address", b"/", {}, b"192.0.2.1"),
        ("header:X-Key", b"/", {"x_key": b"k"}, b"=k"),
        ("cookie:sid", b"/", {"cookie": b"a=1; sid=s%33; b=2"}, b"=s3"),
        ("cookie:sid", b"/", {"cookie": b"xsid=1; a=sid=2; sid"}, b"192.0.2.1"),
        ("cookie:sid", b"/", {"cookie": b"sid = a=b ;"}, b"=a=b"),
        ("cookie:sid", b"/", {"cookie": b"sid=1; sid=2"}, b"192.0.2.1"),
        ("cookie:sid", b"/", {"cookie": b'sid="1"'}, b"192.0.2.1"),
        ("cookie:sid", b"/", {"cookie": b"sid=192.0.2.9"}, b"=192.0.2.9"),
        ("path:2", b"/v1//%61cme;x=1/../bob/x", {}, b"=bob"),
        ("path:2", b"/v1/", {}, b"192.0.2.1"),
        (["header:X-Key", "path:1"], b"/a", {"x_key": b"k"}, b"=k&=a"),
        (["header:X-Key", "path:1"], b"/a&=b", {"x_key": b"k%&"}, b"=k%25%26&=a%26=b"),
        (["header:X-Key", "path:1"], b"/a", {}, b"192.0.2.1&=a"),
        (["client-address"], b"/", {}, b"192.0.2.1"),
    ],
)
def test_values_identify_in_a_name_space_of_their_own(
    methods: str | list[str], path: bytes, fields: dict[str, bytes], identifier: bytes
) -> None:
    info = request_info(**fields)
    info.path = path
    identify = identify_by(methods, client_address())
    assert identify(info) == identifier
    assert methods == "client-address" or identify.per_connection("192.0.2.1") is None


def test_combined_identifiers_are_short() -> None:
    info = request_info(cookie=b"a=" + b"x" * 200 + b";b=" + b"y" * 200)
    found = [identify_by(methods, client_address())(info) for methods in (["cookie:a", "cookie:b"], "cookie:a")]
    assert found[0].startswith(b"sha256:")
    assert found[1] == b"=" + b"x" * 200


@pytest.mark.parametrize(
    "methods", ["", "cookie", "cookie:a b", "path:0", "path:65", "path:x", "path:²", ["header:"], []]
)
def test_an_unknown_method_is_refused(methods: str | list[str]) -> None:
    with pytest.raises(ConfigurationError, match=r"expected .*'client-address'"):
        identify_by(methods, client_address())


def test_an_address_set_has_members_of_networks_of_any_size() -> None:
    addresses = AddressSet(["10.0.0.0/8", "192.0.2.7", "2001:db8::/33", "::ffff:198.51.100.0/120"])
    inside = ("10.9.8.7", "192.0.2.7", "2001:db8:7fff::1", "198.51.100.3", "::ffff:10.0.0.1")
    outside = ("11.0.0.0", "192.0.2.8", "2001:db8:8000::1", "::a00:1", "", "x", "unknown")
    assert [addresses.has(one) for one in (*inside, *outside)] == [True] * 5 + [False] * 7
