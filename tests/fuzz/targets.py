"""The parsers of untrusted input, as fuzz targets: each takes bytes, and any exception is a finding.

A target lets through the documented exceptions only, and asserts laws: any split of the bytes reads the same, a usual
message reads as the general grammar does, and what was decoded encodes to the same bytes.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from headgate.advice.fetching import AdviceResponse, interpret_fully
from headgate.advice.freshness import fresh_for
from headgate.advice.lint import lint_document
from headgate.advice.parser import parse_advice_bytes
from headgate.bundle import open_bundle
from headgate.bundle.format.cbor import CborError
from headgate.bundle.model import Location
from headgate.bundle.reader import Bundle
from headgate.bundle.signing import verify_bundle
from headgate.bundle.signing.keys import read_certificate_chain
from headgate.bundle.signing.signed_subset import read_subset
from headgate.errors import BundleError, ConfigurationError, ProtocolError, WireError
from headgate.http.h1.body import ChunkedBody
from headgate.http.h1.request import (
    RequestBuffer,
    RequestLimits,
    parse_general_request_head,
    parse_request_head,
    parse_usual_request_head,
)
from headgate.http.h1.response import parse_response_head, parse_usual_response_head
from headgate.http.proxy_protocol import parse_proxy_header
from headgate.identity.directory import (
    MEDIA_TYPE,
    InvalidDirectory,
    parse_directory,
    sign_directory,
    write_directory,
)
from headgate.identity.keys import new_signing_key
from headgate.identity.message import SignedMessage
from headgate.identity.signing import RequestSigner
from headgate.identity.url import agent_url
from headgate.identity.verification import read_claims
from headgate.limit import Domain, Gatekeeper, Master, Rule
from headgate.limit.messages import decode_accounting, decode_control, encode_accounting
from headgate.link.batch import decode_batch
from headgate.rlqs.messages import decode_bucket, decode_reports, decode_usage
from headgate.token.keys import Key, new_key
from headgate.token.signed_token import Checker, mint
from tests.malformed import CASES
from tests.malformed.agreement import check_agreement
from tests.signers import NOW, certificate, certificate_pem, vouched

VECTORS = Path(__file__).parents[1] / "vectors"
LIMITS = RequestLimits(body=1 << 20)
DOMAINS = [Domain("a", (Rule.parse("1/s burst 2"),)), Domain("b", (Rule.parse("9/min burst 3"),), "log")]
MASTER = Master(DOMAINS, max_identifiers=64)
GATEKEEPER = Gatekeeper(max_holds=64)
KEY: Key = new_key(entropy=bytes)
CHECKER = Checker([KEY])


class Target(NamedTuple):
    """A fuzz target."""

    run: Callable[[bytes], object]
    seeds: list[bytes]
    """The first inputs."""


def bundle(content: bytes) -> None:
    """Read a bundle with every driver; the first byte chooses the profile and the cuts."""
    choice = content[0] if content else 0
    check_agreement(content[1:], "compat" if choice & 1 else "strict", [choice, 5 * choice, 23 * choice])


def wire(content: bytes) -> None:
    """Read messages of the bus: frames are separated by 0xFF; the first byte chooses the kind."""
    kind, frames = content[:1], content[1:].split(b"\xff")
    with suppress(WireError):
        if kind < b"\x40":
            accounting = decode_accounting(frames)
            encoded = encode_accounting(accounting)
            assert encode_accounting(decode_accounting(encoded)) == encoded
            MASTER.account(accounting, NOW)
            assert MASTER.identifiers("a") + MASTER.identifiers("b") <= 64
        elif kind < b"\x80":
            control = decode_control(frames)
            if control.domain in MASTER.domains:  # as the link does
                GATEKEEPER.obey(control, now=NOW)
        elif kind < b"\xa0":
            decode_batch(content[1:])
        else:
            steps = decode_reports(content[1:])
            try:
                while True:
                    next(steps)
            except StopIteration as ended:
                for usage in ended.value.usages:
                    decode_bucket(decode_usage(usage).bucket_id)


def advice(content: bytes) -> None:
    """Read traffic advice, as an agent and as the checker; the first bytes are a field value."""
    value, body = content[:24].decode("latin-1").strip(), content[24:]
    entry = parse_advice_bytes(body, ("ExampleBot", "*"))
    assert entry is None or 0 <= entry.fraction <= 1
    lint_document(body, content_type=value)
    for fields in ([("content-encoding", value)], [("cache-control", value), ("retry-after", value), ("age", value)]):
        response = AdviceResponse(200, fields, body)
        result = interpret_fully(response, ("ExampleBot", "*")).result
        assert 1 <= fresh_for(response, result, now=NOW) <= 172_800


def http1(content: bytes) -> None:
    """Read requests, responses and chunked bodies; any split reads the same."""
    cut, content = (content[0] % 64 if content else 0), content[1:]
    assert _requests(content, len(content)) == _requests(content, cut)
    assert _chunks(content, len(content)) == _chunks(content, cut)
    end = content.find(b"\r\n\r\n") + 4
    with suppress(ProtocolError):
        usual = parse_usual_response_head(content)
        general = parse_response_head(content[:end])
        if usual is not None:
            assert (usual.status, usual.length, usual.connection) == (
                general.status,
                general.length,
                general.connection,
            )


def _requests(content: bytes, cut: int) -> object:
    buffer, found = RequestBuffer(), []
    try:
        for part in (content[:cut], content[cut:]):
            buffer.append(part)
            while (raw := buffer.next_head(LIMITS)) is not None:
                head = parse_request_head(raw, LIMITS)
                if parse_usual_request_head(raw, LIMITS) is not None:
                    general = parse_general_request_head(raw, LIMITS)
                    assert (head.host, head.target, head.length) == (general.host, general.target, general.length)
                found.append((head.method, head.target, head.host, head.length, head.chunked, head.fields))
                if head.has_body or len(found) == 8:
                    return found, "the rest is a body"
    except ProtocolError:
        return found, "refused"  # the status may depend on what has arrived
    return found, len(buffer)


def _chunks(content: bytes, cut: int) -> object:
    body, pieces = ChunkedBody(framed=True, max_trailers=256, max_size=1 << 16), b""
    try:
        for part in (content[:cut], content[cut:]):
            if body.done:
                body.rest += part
            else:
                pieces += b"".join(body.feed(part))
    except ProtocolError:
        return "refused"
    return body.done, body.rest, body.trailers, body.size, pieces


def proxy_protocol(content: bytes) -> None:
    """Read a header of the PROXY protocol: its beginnings are incomplete, and what follows changes nothing."""
    with suppress(ProtocolError):
        header = parse_proxy_header(content)
        if header is not None:
            assert 0 < header.size <= len(content)
            assert parse_proxy_header(content[: header.size]) == header
            for size in {1, header.size // 2, header.size - 1}:
                assert parse_proxy_header(content[:size]) is None


def signatures(content: bytes) -> None:
    """Read certificates, signed subsets, signed bundles and tokens; the first byte chooses one."""
    kind, content = content[:1], content[1:]
    if kind < b"\x40":
        with suppress(ConfigurationError):
            read_certificate_chain(content)
    elif kind < b"\x60":
        with suppress(CborError):
            read_subset(content)
    elif kind < b"\xc0":
        with suppress(BundleError), open_bundle(content, profile="compat") as opened:
            if verify_bundle(opened, now=NOW, any_certificate=True).valid:
                assert _responses(opened) <= GENUINE  # other bytes, such as the length at the end, are not signed
    else:
        text = content.decode("latin-1")
        result = CHECKER.check(text, now=NOW, origin="https://example.com")
        assert isinstance(result, str) or text == TOKEN


def _responses(opened: Bundle) -> set[tuple[str, str, bytes]]:
    """Return what a reader gets: the record size of a payload of one record is not signed, and is removed."""
    locations = ((url, one) for url, one in opened.metadata.requests.items() if isinstance(one, Location))
    decoded = ((url, opened.decode(location)) for url, location in locations)
    return {(url, f"{one.status} {one.headers}", b"".join(one.pieces(0, one.length))) for url, one in decoded}


def identity(content: bytes) -> None:
    """Read signatures of requests and key directories; the first byte chooses, fields are separated by 0xFF."""
    one, two, three, body = [*content[1:].split(b"\xff", 3), b"", b"", b"", b""][:4]
    fields = [(name, value.decode("latin-1")) for name, value in zip(FIELDS, (one, two, three), strict=True)]
    if content[:1] < b"\x80":
        for claim in read_claims(SignedMessage("GET", "example.com", "/a?b=c", fields), now=NOW):
            assert not claim.is_signed_by(SIGNER.key.public) or claim.base == CLAIM.base
    elif (url := agent_url("https://a.example")) is not None:
        with suppress(InvalidDirectory):
            directory = parse_directory(url, [("content-type", MEDIA_TYPE), *fields[1:]], body, now=NOW)
            assert NOW < directory.fresh_until <= NOW + 1e9


FIELDS = ("signature-agent", "signature-input", "signature")
SIGNER = RequestSigner(new_signing_key(entropy=bytes), "https://a.example", entropy=bytes)
REQUEST = [(name.lower(), value) for name, value in SIGNER.sign("example.com", now=NOW)]
(CLAIM,) = read_claims(SignedMessage("GET", "example.com", "/a?b=c", REQUEST), now=NOW)
DIRECTORY = write_directory([SIGNER.key.public])
PROOF = dict(sign_directory(DIRECTORY, [SIGNER.key], "a.example", now=NOW))
SIGNED = [
    vouched((VECTORS / "bundle/small_b1.wbn").read_bytes()),
    (VECTORS / "bundle/small_b2_signed.swbn").read_bytes(),
]
GENUINE = set().union(*(_responses(open_bundle(content, profile="compat")) for content in SIGNED))
TOKEN = mint(KEY, now=NOW, ttl=60, entropy=bytes)
_HEADS = (
    b"GET /a?b HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: te\r\n\r\n5;x=y\r\nhello\r\n0\r\n\r\n",
    b"PUT http://a/b HTTP/1.0\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello",
    b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Key: x\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nDate: x\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello",
    b"5\r\nhello\r\n0\r\n\r\nGET / HTTP/1.1\r\n",
)
_V2 = b"\r\n\r\n\0\r\nQUIT\n"


def _bundle_seeds() -> list[bytes]:
    bundles = [path.read_bytes() for path in VECTORS.glob("bundle/**/*.*wbn")] + [case.content for case in CASES]
    return [bytes([number % 256]) + content for number, content in enumerate(bundles)]


def _wire_seeds() -> Iterable[bytes]:
    frames: list[list[bytes]] = [
        [b"a\0", b"DELAYED", b"c", b"1700000000000", b"1700000001000", b"log"],
        [b"b\0", b"ACCEPTED", b"c", b"1700000000000", b"", b""],
    ]
    yield from (b"\0" + b"\xff".join(one) for one in frames)
    yield b"\x41" + b"\xff".join([b"a\0", b"DELAY_UNTIL", b"c", b"1800000000000"])
    yield b"\x90\x91\x95\x00\xc4\x01c\x01\x00\xc4\x00"
    yield b"\xf0\x0a\x01a\x12\x10\x0a\x08\x0a\x06\x0a\x01k\x12\x01v\x12\x02\x08\x01\x18\x01"


TARGETS: dict[str, Target] = {
    "wire": Target(wire, list(_wire_seeds())),
    "bundle": Target(bundle, _bundle_seeds()),
    "advice": Target(
        advice, [b"max-age=9, must-revalidate".ljust(24)[:24] + path.read_bytes() for path in VECTORS.glob("advice/*")]
        + [b"gzip".ljust(24) + b'[{"user_agent": "ExampleBot", "disallow": true, "fraction": 0.5}]'],
    ),
    "http1": Target(http1, [b"\x10" + head for head in _HEADS]),
    "proxy_protocol": Target(
        proxy_protocol,
        [
            b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nGET", b"PROXY TCP6 2001:db8::1 ::1 1 2\r\n", b"PROXY UNKNOWN x\r\n",
            _V2 + b"\x21\x11\0\x0c" + bytes(12), _V2 + b"\x20\0\0\0", _V2 + b"\x21\x21\0\x28" + bytes(40),
        ],
    ),
    "signatures": Target(
        signatures,
        [
            b"\0" + certificate_pem(certificate()), *(b"\x80" + content for content in SIGNED),
            b"\xff" + TOKEN.encode(),
            b"\x50" + bytes.fromhex("a56c76616c69646974792d75726c61616b617574682d736861323536406464617465006765787069"
            "726573006d7375627365742d686173686573a1616183406060"),
        ],
    ),
    "identity": Target(
        identity,
        [
            b"\0" + "\xff".join(value for _, value in REQUEST).encode("latin-1"),
            b"\xff\xff" + f"{PROOF['Signature-Input']}\xff{PROOF['Signature']}\xff".encode("latin-1") + DIRECTORY,
        ],
    ),
}  # fmt: skip


def mutate(content: bytes, draw: Any, others: list[bytes]) -> bytes:
    """Return changed content: bits, bytes, pieces copied, cut or taken from another input."""
    out = bytearray(content)
    for _ in range(1 + draw.randrange(4)):
        at, kind = draw.randrange(len(out) + 1), draw.randrange(6)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            out[at:at] = bytes([draw.randrange(256)])
        elif kind == 2:
            del out[at : at + 1 + draw.randrange(8)]
        elif kind == 3:
            other = draw.choice(others)
            start = draw.randrange(len(other) + 1)
            out[at : at + draw.randrange(9)] = other[start : start + draw.randrange(33)]
        elif kind == 4 and at < len(out):
            out[at] = draw.choice(b"\0\x7f\x80\xff\r\n \t:,;09")
        else:
            out[at:at] = out[at : at + draw.randrange(17)]
    return bytes(out)
