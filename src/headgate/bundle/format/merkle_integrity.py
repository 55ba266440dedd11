"""Merkle Integrity Content Encoding (draft-thomson-http-mice-03): a payload with the proofs of its records.

The digest in the header proves the first record and the proof that follows it, which proves the second, and so on, so a
reader may use each record when it arrives. Signed responses are stored in this form, `mi-sha256-03`.

Browsers and HTTP libraries do not support that content coding, so `Bundle.decode` undoes it. A decoded response is
byte for byte what it was before signing: its entity tag and its other codings are valid. Other responses are left as
they are.
"""

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from headgate.bundle.format.cbor import StepError
from headgate.bundle.format.incremental import Bytes, Parser, ReadRequest
from headgate.bundle.model import Location
from headgate.errors import ResponseError

MI_CODING: Final = "mi-sha256-03"
"""The content coding, and the digest algorithm."""

PAYLOAD_INTEGRITY: Final = "digest/mi-sha256-03"
"""The name of this integrity in a signature."""

RECORD_SIZE: Final = 4096
"""Bytes of a record of a new payload: the default of the reference signer."""

MAX_RECORD_SIZE: Final = 16384
"""Maximum bytes of a record (signed exchanges, signature validity): a reader keeps one until it is verified."""
_STEP: Final = "draft-thomson-http-mice-03, 2.2"
_SIZE: Final = 8
_PROOF: Final = hashlib.sha256().digest_size

_LAST, _MORE = b"\0", b"\1"

_READ_SIZE: Final = 1 << 20
"""Bytes that are requested at once."""


class MiEncoded(Struct, frozen=True):
    """A payload and its proofs, to be written; 32 bytes for each record, and no copy of the payload."""

    load: Callable[[], memoryview]
    """Returns the payload."""
    size: int
    """Bytes of the payload."""
    proofs: bytes
    """All but the first, in record order."""
    digest: str
    """The Digest header's value, which holds the first."""
    record_size: int = RECORD_SIZE

    @property
    def length(self) -> int:
        """Bytes of the encoded payload; an empty one has none."""
        return (_SIZE + self.size + len(self.proofs)) if self.size else 0

    def __iter__(self) -> Iterator[bytes]:
        """Yield the encoded payload, a record at a time."""
        content = self.load()
        if not content:
            return
        yield self.record_size.to_bytes(_SIZE, "big") + content[: self.record_size]
        for number in range(len(self.proofs) // _PROOF):
            start = (number + 1) * self.record_size
            yield self.proofs[number * _PROOF : (number + 1) * _PROOF] + content[start : start + self.record_size]


class PayloadLayout(Struct, frozen=True):
    """Where in a payload its content is."""

    length: int
    """Bytes of the content."""
    record_size: int = 0
    """Bytes of a record, each but the last followed by a proof; 0 for a payload that is all content."""

    def spans(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield where the content from `start` to before `stop` is: offsets in the payload, and lengths."""
        size = self.record_size
        while start < stop:
            number = start // size if size else 0
            end = min(stop, (number + 1) * size) if size else stop
            yield start + (_SIZE + number * _PROOF if size else 0), end - start
            start = end

    def read(self, read: Callable[[int, int], Bytes], start: int, stop: int) -> Bytes:
        """Return the content from `start` to before `stop`; `read(offset, length)` returns bytes of the payload."""
        spans = list(self.spans(start, stop))
        if not spans:
            return b""
        # One read, from which the proofs are removed, instead of many short ones.
        begin, (last, length) = spans[0][0], spans[-1]
        stored = memoryview(read(begin, last + length - begin))
        parts = [stored[offset - begin : offset - begin + length] for offset, length in spans]
        return parts[0] if len(parts) == 1 else b"".join(parts)


def mi_encode(load: Callable[[], memoryview], record_size: int = RECORD_SIZE) -> MiEncoded:
    """Compute the proofs of a payload, from the last record back to the first."""
    content = load()
    proofs: list[bytes] = []
    ending = _LAST
    for start in reversed(range(0, len(content) or 1, record_size)):
        proof = hashlib.sha256(content[start : start + record_size])
        proof.update(ending)
        proofs.append(proof.digest())
        ending = proofs[-1] + _MORE
    first = proofs.pop()
    digest = f"{MI_CODING}={base64.b64encode(first).decode()}"
    return MiEncoded(load, len(content), b"".join(reversed(proofs)), digest, record_size)


def parse_mi_digest(digest: str) -> bytes | None:
    """Return the proof in a Digest header's value, which may hold digests of other kinds; None without one."""
    for member in digest.split(","):
        algorithm, _, encoded = member.strip(" \t").partition("=")
        if algorithm.lower() == MI_CODING:
            try:
                proof = base64.b64decode(encoded, validate=True)
            except (binascii.Error, ValueError):
                return None
            return proof if len(proof) == _PROOF else None
    return None


def without_mi_coding(content_encoding: str) -> str | None:
    """Return the codings without this one, which is the last applied, "" for none; None where another is the last."""
    codings = [coding for member in content_encoding.split(",") if (coding := member.strip(" \t"))]
    return ", ".join(codings[:-1]) if codings and codings[-1].lower() == MI_CODING else None


def payload_layout_parser(payload: Location, proof: bytes) -> Parser[PayloadLayout]:
    """Check every record of a payload (section 2.2); raises `StepError` for the first that is wrong."""
    if not payload.length:
        # "the encoding of an empty payload is itself an empty message ... and its integrity proof is SHA-256("\0")"
        _check(b"", _LAST, proof, 0, payload.offset)
        return PayloadLayout(0)
    lead = bytes((yield ReadRequest(payload.offset, min(_SIZE, payload.length))))
    size = int.from_bytes(lead, "big")
    if len(lead) < _SIZE or not 0 < size <= MAX_RECORD_SIZE:
        raise StepError(f"a record size of {size}, not 1 to {MAX_RECORD_SIZE}", _STEP, payload.offset)
    position, end = payload.offset + _SIZE, payload.offset + payload.length
    count, last = divmod(end - position, size + _PROOF)
    if not 0 < last <= size:
        raise StepError(f"the payload ends inside record {count}", _STEP, end)
    at_once = _READ_SIZE // (size + _PROOF)
    for number in range(0, count, at_once):
        length = min(at_once, count - number) * (size + _PROOF)
        records = memoryview((yield ReadRequest(position, length)))
        proof = _check_each(records, size, proof, number, position)
        position += length
    _check((yield ReadRequest(position, last)), _LAST, proof, count, position)
    return PayloadLayout(count * size + last, size)


def _check_each(records: memoryview, size: int, proof: bytes, number: int, position: int) -> bytes:
    """Check records that are followed by proofs, and return the last proof."""
    for start in range(0, len(records), size + _PROOF):
        record = records[start : start + size + _PROOF]
        _check(record, _MORE, proof, number, position + start)
        proof = bytes(record[size:])
        number += 1
    return proof


def _check(record: Bytes, ending: bytes, proof: bytes, number: int, position: int) -> None:
    found = hashlib.sha256(record)
    found.update(ending)
    if found.digest() != proof:
        raise StepError(f"record {number} is not what its digest says", _STEP, position)


class DecodedContent(Struct, frozen=True):
    """The content of a response."""

    headers: dict[str, str]
    """The stored headers, as they were before signing."""
    layout: PayloadLayout
    """Where the content is in the stored payload."""


def mi_decoding_parser(
    headers: Mapping[str, str], payload: Location, *, fallback_url: str | None = None
) -> Parser[DecodedContent]:
    """Verify a payload by its own proofs, and return the content; raises `ResponseError`."""
    codings = without_mi_coding(headers.get("content-encoding", ""))
    if codings is None:
        return DecodedContent(dict(headers), PayloadLayout(payload.length))
    proof = parse_mi_digest(headers.get("digest", ""))
    try:
        if proof is None:
            raise StepError(f"a Digest header with {MI_CODING} is missing", _STEP, payload.offset)
        layout = yield from payload_layout_parser(payload, proof)
    except StepError as error:
        raise ResponseError(error.reason, step=_STEP, offset=error.offset, fallback_url=fallback_url) from None
    # Digests are of the coded bytes.
    shown = {name: value for name, value in headers.items() if name != "digest"}
    shown["content-encoding"] = codings
    if not codings:
        del shown["content-encoding"]
    if "content-length" in shown:
        shown["content-length"] = str(layout.length)
    return DecodedContent(shown, layout)
