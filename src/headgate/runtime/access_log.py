"""The access log of a gate: one line for each request, in a file or on standard output.

Lines are formatted in the event loop and written by a thread (`LineWriter`), in batches: that is cheaper, and no
request waits for the disk. All that a client sends is escaped. Lines have at most `MAX_LINE_SIZE` bytes, in a file on
average, so that the queue is bounded, and several processes write whole lines to one file or pipe.
"""

import asyncio
import hashlib
import json
import os
import random
import re
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import msgspec

from headgate.config.toml_reader import read_bytes
from headgate.config.tree import LogSection
from headgate.errors import explaining, fail_if, naming
from headgate.observe.state import identifier_digest, identifier_text
from headgate.origin.gateway.meter import REFUSED, SERVED
from headgate.origin.gateway.record import RequestRecord
from headgate.origin.identify import ClientAddress
from headgate.release import Status
from headgate.runtime.log import MAX_LINE_SIZE, LineWriter

_FLUSH_INTERVAL: Final = 0.1
"""Seconds that a line waits for others."""
_MAX_BATCH: Final = 256
"""Requests whose lines are formatted at once, in less than a millisecond."""
_MAX_LINES: Final = 1024
"""Lines that are given to the thread at once: waking it costs as much as several lines."""
_MAX_QUEUED: Final = 16
"""Blocks of so many lines queued for the disk; with lines of 450 bytes these are 7 MB, and at most 67 MB."""
_LIMITS: Final = (None, 700, 80)
"""Characters of each text of a client; the first that makes the line short enough."""
_MAX_HASHED: Final = 16_384
"""Hashes that are cached."""
_MIN_KEY_SIZE, _MAX_KEY_SIZE = 16, hashlib.blake2b.MAX_KEY_SIZE

_ACCEPTED: Final = Status.ACCEPTED
_NOT_PLAIN: Final = re.compile(r"[^ !#-\[\]-~]")
_PROTOCOLS: Final = ("HTTP/1.0", "HTTP/1.1")
_MONTHS: Final = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


class AccessLogCounters(msgspec.Struct):
    """What the access log counts."""

    dropped: int = 0
    """Lines of the access log dropped: its file was written too slowly, or could not be written."""


class AccessLine(msgspec.Struct, gc=False):
    """One request in the log; None stands for what is unknown, or did not happen."""

    time: str
    """When the head of the request was complete, in UTC."""
    client: str | None
    """The address of the client; behind trusted proxies, the one that they name."""
    identifier: str | None
    """The client as the rules see it; null where no rule applies."""
    domain: str | None
    """The domain whose rules apply; null if the request matches none."""
    verdict: str | None
    """accepted, delayed or rejected; null if nothing decided: no domain matches, or the request is malformed."""
    reason: str | None
    """Why the gate answered itself, or why the response is not whole; null for a response of the origin."""
    wait_ms: float
    """How long the rules and the concurrency limit delayed the request."""
    method: str | None
    host: str | None
    path: str | None
    """The target without its query, which may contain secrets."""
    protocol: str | None
    status: int | None
    """Null if the client left before a response."""
    bytes: int
    """Bytes of content sent to the client."""
    duration_ms: float
    """From the head of the request to the end of the response."""
    upstream: str | None
    """The origin that was asked last."""
    upstream_ms: float | None
    """From sending the head to the head of the response."""
    upstream_status: int | None
    request_id: str
    user_agent: str | None
    referer: str | None
    agent: str | None
    """The URL of the verified agent that signed the request."""


class AccessLog:
    """Writes a line for each completed request.

    `trusted` finds the client behind the operator's proxies. `key` is that of hashed identifiers if the settings name
    no file. `log` gets a line when the file cannot be written. Raises `ConfigurationError` for a file that cannot be
    used.
    """

    def __init__(self, settings: LogSection, trusted: ClientAddress, key: bytes, *, log: Callable[[str], None]) -> None:
        self._dropped = 0
        self._sample = settings.sample
        self._trusted = trusted
        self._records: list[RequestRecord] = []
        self._lines: list[bytes] = []
        self._waiting = 0  # requests in these lines
        self._is_scheduled = False
        self._format = _json if settings.format == "json" else _combined
        self._thousandths = self._second = 0
        self._stamp = self._date = ""
        self._name = identifier_namer(settings, key)
        self._is_plain = settings.identifiers == "plain"
        name = "standard output" if settings.access == "-" else settings.access
        descriptor = _open(settings.access)
        self._writer = LineWriter(
            descriptor,
            max_queued=_MAX_QUEUED,
            report=lambda text: log(f"warning: access log {name}: {text}"),
            closes=True,
        )

    @property
    def dropped(self) -> int:
        """Lines dropped since the file was opened."""
        return self._dropped + self._writer.lost

    def add(self, record: RequestRecord) -> None:
        """Log a completed request, unless it was served and is not in the sample."""
        if self._sample < 1 and record.reason in SERVED and 0 < record.status < 500 and random.random() >= self._sample:
            return
        self._records.append(record)
        if len(self._records) >= _MAX_BATCH:
            self._format_batch()
            if self._waiting >= _MAX_LINES:
                self.flush()
        elif not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_later(_FLUSH_INTERVAL, self._flush_in_time)

    def flush(self) -> None:
        """Give the lines to the thread that writes them."""
        self._format_batch()
        if self._lines and not self._writer.put(self._lines):
            self._dropped += self._waiting
        self._lines, self._waiting = [], 0

    def _format_batch(self) -> None:
        records, self._records = self._records, []
        if records:
            self._lines += self._format(self._to_lines(records), self._writer.is_file)
            self._waiting += len(records)

    def close(self, timeout: float = 0) -> None:
        """Have all lines written, and the file closed; wait for that for at most `timeout` seconds."""
        self.flush()
        self._writer.close(timeout)

    def _flush_in_time(self) -> None:
        self._is_scheduled = False
        self.flush()

    def _to_lines(self, records: list[RequestRecord]) -> list[AccessLine]:
        # One loop with local names, and fields found without a regular expression: it is most of the cost of a line.
        name, trusted, is_plain = self._name, self._trusted, self._is_plain
        lines = []
        for record in records:
            request, accounting, reason = record.request, record.accounting, record.reason
            first_byte, wait, client = record.upstream_first_byte, record.wait, record.client
            if (thousandths := int(record.received * 1000)) != self._thousandths:
                second, rest = divmod(thousandths, 1000)
                if second != self._second:
                    self._second, self._date = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
                self._thousandths, self._stamp = thousandths, f"{self._date}.{rest:03d}Z"
            method = host = path = protocol = agent = referer = verdict = identifier = domain = None
            if accounting is not None:
                identifier, domain = name(accounting.identifier), accounting.domain
                verdict = "accepted" if accounting.status is _ACCEPTED else "delayed"
            if request is not None:
                head = request.raw
                # The usual spelling is found without a copy in lower case.
                if (at := head.find(b"\nUser-Agent: ")) >= 0 or (at := head.lower().find(b"\nuser-agent:")) >= 0:
                    agent = head[at + 12 : head.find(b"\r", at)].strip().decode("utf-8", "backslashreplace")
                if (at := head.find(b"\nReferer: ")) >= 0 or (at := head.lower().find(b"\nreferer:")) >= 0:
                    referer = head[at + 9 : head.find(b"\r", at)].strip().decode("utf-8", "backslashreplace")
                method, host, protocol = request.method.decode(), request.host.decode(), _PROTOCOLS[request.minor]
                path = request.target.partition(b"?")[0].decode()
                if not request.forwardable and trusted.trusts(client):
                    client = (trusted.chain(request.fields) or [client])[0]
            lines.append(
                AccessLine(
                    self._stamp,
                    (client if is_plain else name(client.encode())) if client else None,
                    identifier,
                    domain,
                    "rejected" if reason in REFUSED else verdict,
                    reason or None,
                    int(wait * 1e6) / 1e3 if wait else 0.0,
                    method,
                    host,
                    path,
                    protocol,
                    record.status or None,
                    record.bytes,
                    int((record.end - record.start) * 1e6) / 1e3,
                    record.upstream or None,
                    int((first_byte - record.upstream_start) * 1e6) / 1e3 if first_byte else None,
                    record.upstream_status or None,
                    record.request_id.decode(),
                    agent,
                    referer,
                    record.agent or None,
                )
            )
        return lines


def identifier_namer(settings: LogSection, key: bytes) -> Callable[[bytes], str | None]:
    """Return what names a client, as the settings say; without a file for it, `key` is the key of hashes."""
    key = _read_key(settings.identifiers_key) if settings.identifiers_key else key
    match settings.identifiers:
        case "off":
            return lambda _: None
        case "hashed":
            hashed = lambda name: hashlib.blake2b(name, digest_size=8, key=key).hexdigest()  # noqa: E731
            return lru_cache(_MAX_HASHED)(hashed)
    return lru_cache(_MAX_HASHED)(_plain_name)


def _plain_name(identifier: bytes) -> str:
    """Return an address, or the digest of what contains a header or a cookie, which may be a credential."""
    return identifier_digest(identifier) if b"=" in identifier else identifier_text(identifier)


def _shortened(line: AccessLine, limit: int) -> AccessLine:
    """Return a line whose texts of a client have at most `limit` characters."""
    texts = {name: getattr(line, name) for name in ("host", "path", "user_agent", "referer", "identifier", "client")}
    return msgspec.structs.replace(line, **{name: text and text[:limit] for name, text in texts.items()})


def _fitting(line: AccessLine, write: Callable[[AccessLine], bytes]) -> bytes:
    """Write a line, with shorter texts of the client if it is too long."""
    for limit in _LIMITS:
        text = write(line if limit is None else _shortened(line, limit))
        if len(text) <= MAX_LINE_SIZE:
            break
    return text + b"\n"


_encoder: Final = msgspec.json.Encoder()


def _json(lines: list[AccessLine], to_file: bool) -> list[bytes]:  # noqa: FBT001
    block = _encoder.encode_lines(lines)
    if block.isascii():
        if to_file and len(block) <= len(lines) * MAX_LINE_SIZE:
            return [block]
        written = block.splitlines(keepends=True)
        if max(map(len, written), default=0) <= MAX_LINE_SIZE:
            return written
    return [_fitting(line, _json_line) for line in lines]


def _json_line(line: AccessLine) -> bytes:
    # A terminal may obey characters that are not printable, and others hide what follows.
    text = _encoder.encode(line).decode()
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text).encode()


def _combined(lines: list[AccessLine], _to_file: bool) -> list[bytes]:  # noqa: FBT001
    return [_fitting(line, _combined_line) for line in lines]


def _combined_line(line: AccessLine) -> bytes:
    date, moment = line.time[:10].split("-"), line.time[11:19]
    target = f"{line.method} {line.path} {line.protocol}" if line.method else "-"
    texts = (line.client, (line.identifier or "-").replace(" ", "_"), target, line.referer, line.user_agent)
    client, user, request, referer, agent = (_NOT_PLAIN.sub(_escaped, text or "-") for text in texts)
    return (
        f'{client} - {user} [{date[2]}/{_MONTHS[int(date[1]) - 1]}/{date[0]}:{moment} +0000] "{request}" '
        f'{line.status or "-"} {line.bytes} "{referer}" "{agent}"'
    ).encode()


def _escaped(match: re.Match[str]) -> str:
    return "".join(f"\\x{byte:02X}" for byte in match[0].encode())


def check_access_log(settings: LogSection) -> None:
    """Raise `ConfigurationError` for files of the access log that cannot be used."""
    identifier_namer(settings, b"")
    if settings.access:
        os.close(_open(settings.access))


def _open(path: str) -> int:
    with explaining(f"log.access: {path!r}", "name a file that can be written"):
        if path == "-":
            return os.dup(1)
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o640)


def _read_key(file: str) -> bytes:
    with naming("log.identifiers_key"):
        key = read_bytes(file, advice="name a readable file", most=_MAX_KEY_SIZE).strip()
        is_valid = _MIN_KEY_SIZE <= len(key) <= _MAX_KEY_SIZE
        fail_if(not is_valid, f"{file}: expected a key of {_MIN_KEY_SIZE} to {_MAX_KEY_SIZE} bytes")
    return key
