"""The messages of Envoy's rate limit quota service, and their bytes (`envoy/service/rate_limit_quota/v3/rlqs.proto`).

Only the fields that the service needs are read; others are skipped. The values of a bucket are bytes, because Envoy
copies them from header fields: types generated from the protocol would refuse a whole report because of one value that
is not UTF-8. This module opens no socket and knows no rules.
"""

from collections.abc import Generator, Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from headgate.errors import WireError

Bucket = tuple[tuple[bytes, bytes], ...]
"""The keys and values of a bucket, in the order of the keys."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}
_MAX_VARINT: Final = 10
"""Bytes of the longest integer."""
_MAX_FIELD: Final = 2**29 - 1
_MAX_INTEGER: Final = 2**64 - 1
_MAX_PAIRS: Final = 16
"""Keys of a bucket that are read."""
_CACHED_STRATEGIES: Final = 256
_MAX_USAGES: Final = 65_536
"""Buckets in a message."""
_MAX_USAGE_SIZE: Final = 8_192
"""Bytes of the report of a bucket."""
_MAX_DOMAIN_SIZE: Final = 1_024
"""Bytes."""
_FIELDS_PER_STEP: Final = 4_096
"""Of a message; they take 2 ms."""


class Usage(NamedTuple):
    """What one Envoy reports of one bucket: the requests since its last report."""

    bucket_id: bytes
    """The message BucketId as received, to be sent back with an assignment; see `decode_bucket`."""
    elapsed: float
    """Seconds since the last report, which Envoy rounds down to whole ones; 0.0 in the first."""
    allowed: int
    denied: int


class Reports(NamedTuple):
    """A message RateLimitQuotaUsageReports."""

    domain: bytes
    """Empty if the message has none: then it is that of the previous message."""
    usages: list[bytes]
    """Messages of type BucketQuotaUsage, for `decode_usage`."""


def decode_reports(data: bytes) -> Generator[None, None, Reports]:
    """Split a message into the reports of its buckets, in steps. Raises `WireError` if it is malformed."""
    domain = b""
    usages: list[bytes] = []
    for number, (field, value) in enumerate(_fields(data), start=1):
        if number % _FIELDS_PER_STEP == 0:
            yield
        if field == 2 and isinstance(value, bytes):
            usages.append(value)
            if len(usages) > _MAX_USAGES:
                raise WireError(f"a message must have at most {_MAX_USAGES} buckets")
        elif field == 1 and isinstance(value, bytes):
            domain = value
            if len(domain) > _MAX_DOMAIN_SIZE:
                raise WireError(f"a domain must have at most {_MAX_DOMAIN_SIZE} bytes, got {len(domain)}")
    return Reports(domain, usages)


def decode_usage(data: bytes) -> Usage:
    """Decode the report of one bucket. Raises `WireError` if it is malformed."""
    if len(data) > _MAX_USAGE_SIZE:
        raise WireError(f"the report of a bucket must have at most {_MAX_USAGE_SIZE} bytes, got {len(data)}")
    fields = dict(_fields(data))
    elapsed = _decode_duration(_bytes_at(fields, 2))
    return Usage(_bytes_at(fields, 1), elapsed, _integer_at(fields, 3), _integer_at(fields, 4))


def decode_bucket(data: bytes) -> Bucket:
    """Decode a message BucketId. Raises `WireError` if it is malformed, or names no bucket."""
    pairs: dict[bytes, bytes] = {}
    for field, entry in _fields(data):
        if field == 1 and isinstance(entry, bytes) and len(pairs) <= _MAX_PAIRS:
            parts = dict(_fields(entry))
            pairs[_bytes_at(parts, 1)] = _bytes_at(parts, 2)
    if not 0 < len(pairs) <= _MAX_PAIRS:
        raise WireError(f"a bucket must have 1 to {_MAX_PAIRS} keys, got {len(pairs)}")
    return tuple(sorted(pairs.items()))


def _decode_duration(data: bytes) -> float:
    """Decode a Duration into seconds; a negative one is 0.0."""
    fields = dict(_fields(data))
    seconds, nanoseconds = (
        value - 2**64 if value >= 2**63 else value for value in (_integer_at(fields, 1), _integer_at(fields, 2))
    )
    return max(0.0, seconds + nanoseconds / 1e9)


def _bytes_at(fields: Mapping[int, int | bytes], number: int) -> bytes:
    """Return a field that is bytes; empty if it is missing."""
    value = fields.get(number)
    return value if isinstance(value, bytes) else b""


def _integer_at(fields: Mapping[int, int | bytes], number: int) -> int:
    """Return a field that is an integer; 0 if it is missing."""
    value = fields.get(number)
    return value if isinstance(value, int) else 0


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message: their number, and an integer or the bytes. Raises `WireError`."""
    at, end = 0, len(data)
    while at < end:
        # Nearly all integers have one byte; a call for each would take half of the time.
        tag = data[at]
        at += 1
        if tag >= 0x80:
            tag, at = _read_varint(data, at - 1)
        field, kind = tag >> 3, tag & 7
        if not 0 < field <= _MAX_FIELD:
            raise WireError(f"invalid number of a field: {field}")
        if kind == _BYTES:
            size, at = (data[at], at + 1) if at < end and data[at] < 0x80 else _read_varint(data, at)
            if size > end - at:
                raise WireError(f"a field of {size} bytes, {end - at} left")
            yield field, data[at : at + size]
            at += size
        elif kind == _VARINT:
            value, at = _read_varint(data, at)
            yield field, value
        elif kind in _FIXED_SIZES:
            at += _FIXED_SIZES[kind]
            if at > end:
                raise WireError("the end of a field is missing")
        else:
            raise WireError(f"unknown kind of field: {kind}")


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read an integer at a position; return it and the position after it."""
    value = shift = 0
    for byte in data[at : at + _MAX_VARINT]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value & _MAX_INTEGER, at + shift // 7
    raise WireError("the end of an integer is missing")


@lru_cache(_CACHED_STRATEGIES)
def token_bucket(tokens: int, fill: int, interval: int) -> bytes:
    """Encode the strategy that admits at most `tokens` requests, and `fill` more per `interval`, in seconds.

    All are whole numbers of at least 1. Most clients have the same strategy, the whole rule, as they use one Envoy.
    """
    return _bytes(3, _integer(1, tokens) + _bytes(2, _integer(1, fill)) + _bytes(3, _integer(1, interval)))


def abandon(bucket_id: bytes) -> bytes:
    """Encode the action by which Envoy forgets a bucket."""
    return _bytes(1, _bytes(1, bucket_id) + _bytes(3, b""))


def assign(bucket_id: bytes, seconds: int, strategy: bytes) -> bytes:
    """Encode the action that gives a bucket a strategy for so many seconds, at least 1."""
    assignment = _bytes(2, _integer(1, seconds)) + _bytes(3, strategy)
    return _bytes(1, _bytes(1, bucket_id) + _bytes(2, assignment))


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


ALLOW_ALL: Final = _integer(1, 0)
DENY_ALL: Final = _integer(1, 1)
