"""Malformed messages of the bus from a seeded random number generator: frames, batches, controls, and ZMTP bytes."""

import struct
from collections.abc import Callable, Iterator
from random import Random

import msgspec

from headgate.link.batch import BATCH, batch_topic

Message = list[bytes]

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_NUMBERS = [b"", b"-1", b"+1", b"nan", b"inf", b"1e400", b"1e-400", b"1_000", b" 1 ", b"0x10", b"9" * 400, b"1.5"]
_NUMBERS += ["\u0661\u0662".encode(), b"1\0", b".", b"1.", b"\xff\xff", b"99999999999999999999", b"1e3"]
_WORDS = [b"", b"\0", b"api", b"api\0", b"other\0", b"ACCEPTED", b"accepted", b"DELAYED", b"REJECTED", b"ACCEPTED\0"]
_VALUES: list[object] = [
    None,
    True,
    -1,
    2**64 - 1,
    -(2**63),
    1e308,
    float("nan"),
    b"",
    b"x" * 300,
    "text",
    [],
    [[]],
    {},
    {b"a": 1},
]


def random_frames(random: Random) -> Message:
    """Draw frames of any content."""
    return [random.randbytes(random.choice((0, 1, 8, 40, 300))) for _ in range(random.randint(1, 9))]


def changed_frames(random: Random) -> Message:
    """Draw a message of the document that is cut short, prolonged, or has another value in one frame."""
    frames = [b"api\0", random.choice((b"ACCEPTED", b"DELAYED", b"REJECTED")), b"id", b"1", b"2", b"log"]
    kind = random.randrange(4)
    if kind == 0:
        return frames[: random.randint(1, 5)]
    if kind == 1:
        return frames + [random.randbytes(4) for _ in range(random.randint(1, 80))]
    at = random.randrange(6)
    if kind == 2:
        frames[at] = random.choice(_NUMBERS if at in {3, 4} else _WORDS) if at != 2 else b"x" * random.randint(250, 260)
    else:
        frames[at] = random.randbytes(random.choice((1, 8, 255, 256, 5_000)))
    return frames


def random_batch(random: Random) -> Message:
    """Draw a batch: with a payload that is invalid in some way."""
    domain = random.choice(("api", "other", "x" * 254))
    first = random.choice((batch_topic(domain), BATCH + random.randbytes(5), BATCH))
    return [first, random.choice(_PAYLOADS)(random), *[b"x"] * random.choice((0, 0, 0, 1, 70))]


def _valid_payload(random: Random) -> bytes:
    count = random.randint(0, 300)
    return msgspec.msgpack.encode([(random.randrange(3), b"id", 1_000, 2_000, b"") for _ in range(count)])


def _changed_payload(random: Random) -> bytes:
    content = bytearray(_valid_payload(random))
    for _ in range(random.randint(1, 3)):
        content[random.randrange(len(content))] = random.randrange(256)
    return bytes(content[: random.randint(1, len(content))] if random.random() < 0.3 else content)


def _changed_records(random: Random) -> bytes:
    records: list[object] = []
    for _ in range(random.randint(1, 20)):
        record: list[object] = [random.randrange(3), b"id", 1_000, 2_000, b""]
        record[random.randrange(5)] = random.choice(_VALUES)
        records.append(record[: random.randint(0, 5)] if random.random() < 0.2 else record)
    return msgspec.msgpack.encode(records)


def _nested(random: Random) -> bytes:
    return random.choice((b"\x91", b"\x81\xc0", b"\xdc\x00\x01", b"\xdd\x00\x00\x00\x01")) * random.randint(1, 20_000)


def _absurd_length(random: Random) -> bytes:
    return random.choice((b"\xdd", b"\xdc", b"\xc6", b"\xdf", b"\xdb")) + b"\xff" * random.randint(0, 8)


_PAYLOADS: list[Callable[[Random], bytes]] = [
    _valid_payload,
    _changed_payload,
    _changed_payload,
    _changed_records,
    _nested,
    _absurd_length,
    lambda random: random.randbytes(random.randint(0, 300)),
]


def zmtp_stream(random: Random, kind: bytes) -> Iterator[bytes]:
    """Draw the bytes of one connection: a handshake as socket `kind`, then frames of which some are malformed."""
    if random.random() < 0.2:
        broken = bytearray(GREETING)
        broken[random.randrange(len(broken))] = random.randrange(256)
        yield bytes(broken)
    else:
        yield GREETING
    ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind
    yield _frame(4, ready if random.random() < 0.9 else random.randbytes(30))
    for _ in range(random.randint(1, 300)):
        flags = random.choice((0, 1)) if random.random() < 0.99 else random.randrange(256)
        yield _frame(flags, random.choice((b"\1", b"\0", b"")) + random.randbytes(random.choice((0, 3, 40, 300))))


def curve_stream(random: Random) -> Iterator[bytes]:
    """Draw the bytes of one connection: commands of a CURVE handshake with random content."""
    yield GREETING.replace(b"NULL\0", b"CURVE")
    for _ in range(random.randint(1, 4)):
        name, size = random.choice(((b"\x05HELLO", 194), (b"\x08INITIATE", 248), (b"\x07MESSAGE", 40), (b"", 8)))
        content = random.choice((b"\1\0", b"")) + random.randbytes(random.choice((size, size - 2, 0, 500)))
        yield _frame(4, name + content)


def _frame(flags: int, content: bytes) -> bytes:
    if len(content) > 255 or flags & 2:
        return bytes([flags | 2]) + struct.pack(">Q", len(content)) + content
    return bytes([flags, len(content)]) + content
