"""One response: 3.4 steps 1 to 14, and its headers, 3.6."""

from collections.abc import Iterator
from dataclasses import replace

from tests.malformed.case import Case, accepted, refused
from tests.malformed.parts import (
    HEADERS,
    PRIMARY,
    RESPONSES,
    Bundle,
    array,
    data,
    head,
    header_map,
    pairs,
    response,
    text,
    uint,
)

GOOD = Bundle()
MOST = (1 << 64) - 1
PLAIN = {b":status": b"200", b"content-type": b"text/plain"}
BEFORE = 1 + len(RESPONSES[1])
"""Bytes of the responses section before the response under test."""


def response_cases() -> Iterator[Case]:
    """Yield them, in the order of the steps."""
    yield from _lead()
    yield from _header_items()
    yield from _fields()
    yield from _payload()


def _start(bundle: Bundle) -> int:
    return bundle.at("responses") + BEFORE


def _lead() -> Iterator[Case]:
    """Steps 1 to 4."""
    good = GOOD.answering(response())
    whole, start = good.written(), _start(good)
    for cut, step in {
        0: "3.4 step",
        1: "3.4 step 3",
        2: "3.4 step",
        20: "3.4 step 5",
        len(response()) - 1: "3.4 step",
    }.items():
        name = f"response: the file ends {cut} bytes into it"
        yield Case(name, whole[: start + cut], "response", step, fallback_url=PRIMARY)
    rest = response()[1:]
    for name, first in {
        "one item": b"\x81",
        "three items": b"\x83",
        "a map": b"\xa1",
        "a longer head": b"\x98\x02",
        "an indefinite array": b"\x9f",
        "a tag": b"\xc0\x82",
        "a byte before it": b"\0\x82",
    }.items():
        bundle = GOOD.answering(first + rest)
        yield refused(f"response step 2: {name}", bundle, "3.4 step 2", _start(bundle))
    empty = GOOD.answering(b"", 0)
    yield refused("response: a location of no bytes", empty, "3.4 step")
    for size in (524_286, 524_287):
        yield accepted(f"response step 4: {size} bytes of headers are taken", _headed(size))
    for size in (524_288, 524_289):
        bundle = _headed(size)
        yield refused(f"response step 4: {size} bytes of headers", bundle, "3.4 step 4", _start(bundle) + 1)
    for claimed in (524_288, 1 << 32, 1 << 63, MOST):
        bundle = GOOD.answering(b"\x82" + head(2, claimed) + HEADERS + data(b"hello"))
        yield refused(f"response step 4: {claimed} bytes of headers, claimed", bundle, "3.4 step 4", _start(bundle) + 1)
    bundle = GOOD.answering(b"\x82" + head(2, 524_287) + HEADERS + data(b"hello"))
    yield refused("response step 5: 524287 bytes of headers, claimed", bundle, "3.4 step 5")


def _headed(size: int) -> Bundle:
    """Return a bundle whose response has `size` bytes of headers."""
    padding = size - len(header_map({**PLAIN, b"x": b"y" * 70_000})) + 70_000
    headers = header_map({**PLAIN, b"x": b"y" * padding})
    assert len(headers) == size
    return GOOD.answering(response(headers))


def _header_items() -> Iterator[Case]:
    """Step 5: anything but `{* bstr => bstr}`."""
    name, value = data(b"content-type"), data(b"text/plain")
    status = data(b":status"), data(b"200")
    for what, headers in {
        "no bytes": b"",
        "an array": b"\x80",
        "text": text("x"),
        "null": b"\xf6",
        "a byte after it": HEADERS + b"\0",
        "cut": HEADERS[:-1],
        "out of order": pairs((name, value), status),
        "in order of the names, not of the bytes": pairs(status, (data(b"a"), data(b"b")), (name, value)),
        "one name twice": pairs(status, (name, value), (name, value)),
        "a name as text": pairs(status, (text("content-type"), value)),
        "a value as text": pairs(status, (name, text("text/plain"))),
        "a value as a number": pairs((data(b":status"), uint(200)), (name, value)),
        "a value that is an array": pairs(status, (name, b"\x81" + value)),
        "a tagged value": pairs(status, (name, b"\xc0" + value)),
        "a value in chunks": pairs(status, (name, b"\x5f" + value + b"\xff")),
        "one pair less than it says": b"\xa3" + HEADERS[1:],
        "one pair more than it says": b"\xa1" + HEADERS[1:],
        "2^64-1 pairs": head(5, MOST) + HEADERS[1:],
        "a billion pairs": head(5, 1 << 30) + HEADERS[1:],
        "a name of 2^64-1 bytes": b"\xa2" + head(2, MOST) + HEADERS[2:],
        "a value of 2^64-1 bytes": b"\xa1" + data(b":status") + head(2, MOST) + b"200",
        "100,000 nested arrays": b"\x81" * 100_000 + b"\0",
        "100,000 nested maps for a name": b"\xa1" * 100_000,
        "100,000 nested arrays for a value": b"\xa1" + data(b":status") + b"\x81" * 100_000 + b"\0",
        "a float for a name": pairs((b"\xf9\0\0", value)),
    }.items():
        bundle = GOOD.answering(response(headers))
        yield refused(f"response step 5: {what}", bundle, "3.4 step 5")


def _fields() -> Iterator[Case]:
    """Step 6, which is 3.6; and steps 7 to 9."""

    def having(**changes: bytes | None) -> Bundle:
        fields = {**PLAIN, **{name.encode("latin-1"): value for name, value in changes.items()}}
        return GOOD.answering(
            response(header_map({name: value for name, value in fields.items() if value is not None}))
        )

    for name in ("X", "content-Type", "x\x80", "\xe9", ":Status", "x-\xff"):
        yield refused(f"headers step 4.1: the name {name!r}", having(**{name: b"x"}), "3.6 step 4.1")
    for name in ("", " ", "x y", "x:", "x\0", "x\n", "x\t", "a(b", "a,b", "a/b", 'a"b', "a@b", "a[b", "{", "\x7f",
                 "x "):  # fmt: skip
        yield refused(f"headers step 4.3: the name {name!r}", having(**{name: b"x"}), "3.6 step 4.3")
    for value in (b"\0", b"a\0b", b"a\rb", b"a\nb", b"a\r\n b", b" a", b"a ", b"\ta", b"a\t", b"\r", b" "):
        yield refused(f"headers step 4.3: the value {value!r}", having(x=value), "3.6 step 4.3")
    for value in (b"", b"a\tb", b"\x80\xff", b"a  b", b"\x01"):
        yield accepted(f"headers step 4.3: the value {value!r} is valid for FETCH", having(x=value))
    pseudo_headers: dict[str, dict[str, bytes | None]] = {
        "no pseudo-header": {":status": None},
        "another one with it": {":path": b"/"},
        "another one alone": {":status": None, ":path": b"/"},
        "one with no name": {":": b""},
    }
    for what, changes in pseudo_headers.items():
        yield refused(f"response step 7: {what}", having(**changes), "3.4 step 7")
    for status in (b"", b"2", b"20", b"2000", b"0200", b" 200", b"200 ", b"+20", b"2e2", b"20\xb2", "٢٠٠".encode(),
                   b"abc"):  # fmt: skip
        yield refused(f"response step 8: {status!r}", having(**{":status": status}), "3.4 step 8")
    # The profiles differ only in what they require of an empty payload.
    bare = header_map({b":status": b"200"})
    yield refused("response step 9: content-type is missing", GOOD.answering(response(bare)), "3.4 step 9")
    empty = GOOD.answering(response(bare, b""))
    yield refused("response step 9: content-type is missing, and no payload", empty, "3.4 step 9", compat="ok")
    yield accepted("response step 9: an empty content-type", having(**{"content-type": b""}))


def _payload() -> Iterator[Case]:
    """Steps 10 to 12."""
    lead = b"\x82" + data(HEADERS)
    at = len(lead)
    for what, payload in {
        "text": text("hello"),
        "a number": uint(5),
        "an array": b"\x81" + data(b"x"),
        "a map": b"\xa0",
        "null": b"\xf6",
        "a tag": b"\xc6" + data(b"x"),
        "in chunks": b"\x5f" + data(b"x") + b"\xff",
    }.items():
        bundle = GOOD.answering(lead + payload)
        yield refused(f"response step 10: {what}", bundle, "3.4 step 10", _start(bundle) + at)
    for what, payload in {
        "none of its own, but the trailing length's bytes": b"",
        "a byte less than it says": head(2, 6) + b"hello",
        "a byte more than it says": head(2, 4) + b"hello",
        "no byte, it says": head(2, 0) + b"hello",
        "2^32 bytes, it says": head(2, 1 << 32) + b"hello",
        "2^63 bytes, it says": head(2, 1 << 63) + b"hello",
        "2^64-1 bytes, it says": head(2, MOST) + b"hello",
        "a third item": data(b"hello") + data(b"x"),
    }.items():
        bundle = GOOD.answering(lead + payload)
        yield refused(f"response step 11: {what}", bundle, "3.4 step 11")
    whole = response()
    for length in (len(whole) - 1, len(whole) - 5, len(whole) + 1, 1):
        bundle = GOOD.answering(whole, length, b"\0\0")
        yield refused(f"response step 11: a location of {length} for {len(whole)} bytes", bundle, "3.4 step 11")
    deep = data(b"\x81" * 100_000)
    yield accepted("response step 12: a payload is never decoded", GOOD.answering(lead + deep))
    for claimed in (1 << 20, 1 << 32, 1 << 40, 1 << 63):
        long = lead + head(2, claimed)
        bundle = GOOD.answering(long + b"hello", len(long) + claimed)
        names = [("index", len(bundle.sections["index"])), ("manifest", len(bundle.sections["manifest"]))]
        lengths = array(*(item for name, size in [*names, ("responses", MOST)] for item in (text(name), uint(size))))
        bundle = replace(bundle, lengths=lengths)
        yield refused(f"response step 12: a payload of {claimed} bytes, claimed", bundle, "3.4 step 12")
