"""The bytes between a sidecar and the workers of nginx: records, in both directions.

A record is ``KIND NUMBER NUMBER SIZE BYTES LF``: a word of lower-case letters, three decimal numbers, as many bytes as
the third one says, and a line feed. `BYTES` may be any bytes. A receiver ignores kinds that it does not know.

From a worker: `hello` (version, number of workers; the name of their nginx), `accepted`, `delayed` and `rejected`
(received, release; DOMAIN NUL IDENTIFIER) and `status` (verdicts dropped and holds evicted since the last one).
To a worker: `settings` (its bytes are records, see lua/headgate/sidecar.lua), `hold` (release; DOMAIN NUL IDENTIFIER),
`clear` and `alive`. Instants are milliseconds since 1970.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from headgate.errors import WireError

VERSION = 2
"""The version of the records, which a worker names in its `hello`."""

MAX_RECEIVED_BYTES = 2_048
"""Maximum bytes in a record of a worker: a domain, NUL and an identifier."""

_HEAD = re.compile(rb"([a-z]{1,16}) ([0-9]{1,15}) ([0-9]{1,15}) ([0-9]{1,7}) ")
_MAX_HEAD = 16 + 15 + 15 + 7 + 4


class Record(NamedTuple):
    """One record."""

    kind: bytes
    first: int
    second: int
    content: bytes


def encode_record(kind: bytes, first: int = 0, second: int = 0, content: bytes = b"") -> bytes:
    """Encode a record; the numbers are not negative."""
    return b"%b %d %d %d %b\n" % (kind, first, second, len(content), content)


class RecordReader:
    """Splits a stream of bytes into records, however it is divided into pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Record]:
        """Yield the records that `data` completes. Raises `WireError` for anything else, and for one that is too long.

        The iterator must be exhausted before the next call.
        """
        data = self._rest + data
        position = 0
        while head := _HEAD.match(data, position):
            start, size = head.end(), int(head[4])
            if size > MAX_RECEIVED_BYTES:
                raise WireError(f"record of {size} bytes; expected at most {MAX_RECEIVED_BYTES}")
            if len(data) <= start + size:
                break
            if data[start + size] != 0x0A:
                raise WireError(f"record of {size} bytes that does not end with a line feed")
            yield Record(head[1], int(head[2]), int(head[3]), data[start : start + size])
            position = start + size + 1
        else:
            if len(data) - position >= _MAX_HEAD:
                raise WireError(f"malformed record {data[position : position + 40]!r}")
        self._rest = data[position:]
