"""A model of Envoy 1.40 that is connected to a quota service in this process, and a clock for both.

It behaves as measured (docs/decisions/quota-service.md): a request for a new bucket passes and is reported
at once, all buckets are reported every five seconds, token buckets fill continuously, and new parameters of a token
bucket keep its fill ratio.
"""

from collections.abc import Sequence
from typing import Any, Final

from headgate.limit import Accounting, DelayUntil, Domain, Master, Rule
from headgate.release import NEVER
from headgate.rlqs import messages
from headgate.rlqs.service import QuotaService
from headgate.rlqs.table import QuotaLimits, QuotaStream

START = 1_700_000_000.0
"""The wall-clock time at the start of a world; tests may set it back."""
INTERVAL: Final = 5.0
METHOD: Final = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas"


def encode_report(domain: bytes, usages: Sequence[tuple[bytes, int, int, int]]) -> bytes:
    """Encode a report of buckets: BucketId, whole seconds, allowed, denied."""
    field = messages._bytes
    encoded = field(1, domain)
    for bucket_id, seconds, allowed, denied in usages:
        counts = b"".join(messages._integer(number, n) for number, n in ((3, allowed), (4, denied)) if n)
        encoded += field(2, field(1, bucket_id) + field(2, messages._integer(1, seconds) if seconds else b"") + counts)
    return encoded


def bucket_id(identifier: bytes, key: bytes = b"identifier") -> bytes:
    """Encode a BucketId with one key."""
    return messages._bytes(1, messages._bytes(1, key) + messages._bytes(2, identifier))


def decode_reports(data: bytes) -> messages.Reports:
    """Decode a message at once."""
    steps = messages.decode_reports(data)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            reports: messages.Reports = end.value
            return reports


def decode_actions(data: bytes) -> list[tuple[bytes, str, dict[str, int]]]:
    """Decode a response: for each action the BucketId, its kind, and its numbers."""
    return [_decode_action(action) for _, action in messages._fields(data)]


def _decode_action(action: Any) -> tuple[bytes, str, dict[str, int]]:
    fields = _decode(action)
    if 3 in fields:
        return fields[1], "abandon", {}
    assignment = _decode(fields[2])
    ttl = _decode(assignment[2])[1]
    strategy = _decode(assignment[3])
    if 1 in strategy:
        return fields[1], ("allow", "deny")[strategy[1]], {"ttl": ttl}
    bucket = _decode(strategy[3])
    fill, interval = _decode(bucket[2])[1], _decode(bucket[3])[1]
    return fields[1], "tokens", {"ttl": ttl, "tokens": bucket[1], "fill": fill, "interval": interval}


def _decode(data: bytes) -> dict[int, Any]:
    return dict(messages._fields(data))


class _Bucket:
    """One bucket of an Envoy."""

    def __init__(self, now: float) -> None:
        self.kind = ""
        self.tokens = self.most = self.rate = 0.0
        self.filled = self.reported = now
        self.expires = NEVER
        self.allowed = self.denied = 0

    def fill(self, now: float) -> None:
        self.tokens = min(self.most, self.tokens + (now - self.filled) * self.rate)
        self.filled = now

    def admit(self, now: float) -> bool:
        if now >= self.expires:
            self.kind = ""
        allowed = self.kind != "deny"
        if self.kind == "tokens":
            self.fill(now)
            allowed = self.tokens >= 1 - 1e-9
            self.tokens -= allowed
        self.allowed += allowed
        self.denied += not allowed
        return allowed

    def assign(self, kind: str, now: float, *, ttl: int, **numbers: int) -> None:
        was = self.kind if now < self.expires else ""
        self.kind, self.expires = kind, now + ttl
        if kind == "tokens":
            most, rate = numbers["tokens"], numbers["fill"] / numbers["interval"]
            if was == "tokens":
                self.fill(now)
                self.tokens = most * self.tokens / self.most
            else:
                self.tokens = most
            self.most, self.rate, self.filled = most, rate, now


class World:
    """A quota service, its master, and the time."""

    def __init__(self, *rules: str, limits: QuotaLimits | None = None, **domain: Any) -> None:
        self.time = 0.0
        self.controls: list[DelayUntil] = []
        self.is_serving = True
        self._domain = Domain("api", tuple(map(Rule.parse, rules)), **{"algorithm": "gcra", **domain})
        self._limits = limits
        self.restart()

    def restart(self) -> None:
        """Start a master without a history, and its service."""
        self.master = Master([self._domain])
        self.service = QuotaService(self.master, self.publish, limits=self._limits)

    @property
    def now(self) -> float:
        """The time since 1970."""
        return START + self.time

    def publish(self, control: DelayUntil) -> None:
        """Publish a control, as a link does."""
        self.controls.append(control)
        self.service.on_control(control.domain, control.identifier, control.release, now=self.now, moment=self.time)

    def account(self, accounting: Accounting, now: float) -> DelayUntil | None:
        """Record a request that a gatekeeper on the bus has decided on."""
        control = self.master.account(accounting, now)
        if control is not None:
            self.publish(control)
        return control

    def open(self, peer: str = "ipv4:192.0.2.1") -> QuotaStream | None:
        """Open a stream from an address."""
        return self.service.open(lambda: None, peer=peer)

    def receive(self, stream: QuotaStream, data: bytes) -> int:
        """Let the service process a message; return the number of steps."""
        return len(list(self.service.receive(stream, data, now=self.now, moment=self.time)))

    def turn(self) -> None:
        """Let the service do what is due."""
        self.service.turn(now=self.now, moment=self.time)


class Envoy:
    """An Envoy whose reports are sent `phase` seconds after multiples of five."""

    def __init__(self, world: World, phase: float = 0.0, domain: bytes = b"api", peer: str = "ipv4:127.0.0.1") -> None:
        self.world = world
        self.peer = peer
        self.domain = domain
        self.buckets: dict[bytes, _Bucket] = {}
        self.stream = world.open(peer)
        self.next_report = world.time + (phase or INTERVAL)

    def disconnect(self) -> None:
        """Lose the stream."""
        assert self.stream is not None
        self.world.service.close(self.stream)
        self.stream = None

    def request(self, identifier: bytes = b"c1") -> bool:
        """Return whether a request passes."""
        key = bucket_id(identifier)
        bucket = self.buckets.get(key)
        if bucket is None:
            bucket = self.buckets[key] = _Bucket(self.world.time)
            allowed = bucket.admit(self.world.time)
            self.report([key])
            return allowed
        return bucket.admit(self.world.time)

    def tick(self) -> None:
        """Report if it is time, and apply what has arrived. A stream that was lost is opened again before a report."""
        if self.world.time >= self.next_report - 1e-9:
            self.next_report += INTERVAL
            if self.stream is None and self.world.is_serving:
                self.stream = self.world.open(self.peer)
            if self.buckets:
                self.report(list(self.buckets))
        self.read()

    def report(self, keys: list[bytes]) -> None:
        """Send a report of buckets; without a stream, the counts are lost."""
        usages = []
        for key in keys:
            bucket = self.buckets[key]
            usages.append((key, int(self.world.time - bucket.reported), bucket.allowed, bucket.denied))
            bucket.allowed = bucket.denied = 0
            bucket.reported = self.world.time
        if self.stream is not None:
            self.world.receive(self.stream, encode_report(self.domain, usages))
            self.read()

    def read(self) -> None:
        """Apply what the service has sent."""
        while self.stream is not None and (data := self.stream.take()):
            for key, kind, numbers in decode_actions(data):
                if kind == "abandon":
                    del self.buckets[key]
                elif key in self.buckets:
                    self.buckets[key].assign(kind, self.world.time, **numbers)
