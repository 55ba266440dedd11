"""What a gate counts of completed requests: responses, bytes, and histograms of their durations.

Every request passes through `RequestMeter.count`, so it only increments preallocated numbers. The dictionaries that
become metrics are made when the state is read.
"""

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Annotated, Any, Final

import msgspec

from headgate.histogram import SECONDS, Histogram, histogram_of
from headgate.origin.gateway.exchange import UpstreamPool
from headgate.origin.gateway.record import RequestRecord

CLASSES: Final = ("none", "1xx", "2xx", "3xx", "4xx", "5xx")
"""The classes of status codes; "none" for a request whose client was sent no response."""

MAX_REFUSED: Final = 15
"""Refused requests that are kept."""
SERVED: Final = frozenset({"", "advice", "local", "redirect", "tunnel"})
"""Reasons of requests that neither failed nor were rejected."""
REFUSED: Final = frozenset({"rule", "concurrency", "full", "lifeboat", "limit", "client_limit", "denied", "challenge"})
"""Reasons of requests that the gate rejected."""

_WIDTH: Final = len(SECONDS) + 1
_ROWS: Final = 10
"""Hundreds of a status of three digits; an unknown class counts as 5xx (9110 15)."""
_WITHOUT_RULES: Final = frozenset({"advice", "local", "denied", "redirect", "challenge"})
"""Reasons of responses of the gate that need no domain."""


class RequestCounters(msgspec.Struct):
    """What a gate counts of completed requests."""

    responses: Annotated[dict[str, dict[str, int]], "domain", "class"] = {}
    """Responses by the class of their status; none: the connection ended without one. The domain none stands for
    requests that no rule applies to."""
    response_bytes: Annotated[dict[str, int], "domain"] = {}
    """Bytes of content sent to clients."""
    response_seconds: Annotated[dict[str, Histogram], "domain", "le"] = {}
    """Seconds from the head of a request to the end of its response."""
    wait_seconds: Annotated[dict[str, Histogram], "domain", "le"] = {}
    """Seconds for which rules or the concurrency limit delayed a request; 0 for a request that was not delayed."""
    upstream_responses: Annotated[dict[str, dict[str, int]], "origin", "class"] = {}
    """Responses of an origin by the class of their status."""
    upstream_seconds: Annotated[dict[str, Histogram], "origin", "le"] = {}
    """Seconds from the head of a request sent to an origin to the head of its response."""
    upstream_failures: Annotated[dict[str, dict[str, int]], "origin", "reason"] = {}
    """Attempts that failed at an origin. Without a second one answered 502: unreachable, it accepted no connection or
    closed it without an answer; tls, the handshake failed; malformed, its answer is not valid HTTP; descriptors, this
    process has none left for a connection. 504: timeout. Truncated responses are cut off."""
    unmatched_requests: int = 0
    """Requests that match no domain: no rule applies to them."""


class _Series:
    """The counts of one domain or one origin: by class of status and duration, and the waits."""

    __slots__ = ("bytes", "counts", "failed", "seconds", "wait_counts", "waits")

    def __init__(self) -> None:
        self.counts = [0] * (_ROWS * _WIDTH)
        self.seconds = 0.0
        self.bytes = self.failed = 0
        self.wait_counts = [0] * _WIDTH
        self.waits = 0.0

    def classes(self) -> dict[str, int]:
        """Return the counts by class of status."""
        rows = [sum(self.counts[start : start + _WIDTH]) for start in range(0, _ROWS * _WIDTH, _WIDTH)]
        return dict(zip(CLASSES, [*rows[:5], sum(rows[5:])], strict=True))

    def durations(self) -> Histogram:
        """Return the histogram of the durations."""
        return histogram_of([sum(self.counts[bucket::_WIDTH]) for bucket in range(_WIDTH)], self.seconds)

    def wait_durations(self) -> Histogram:
        """Return the histogram of the waits; requests that did not wait are in the first bucket."""
        waited = sum(self.wait_counts)
        return histogram_of([sum(self.counts) - waited + self.wait_counts[0], *self.wait_counts[1:]], self.waits)


class RequestMeter:
    """Counts completed requests."""

    def __init__(self) -> None:
        self._domains = defaultdict[str, _Series](_Series)
        self._origins = defaultdict[str, _Series](_Series)
        self._unmatched = 0
        self._all, self._upstream = _Series(), _Series()
        self.refused: deque[RequestRecord] = deque(maxlen=MAX_REFUSED)
        """The last requests that the gate refused, or that failed."""

    def count(self, record: RequestRecord) -> None:
        """Count a completed request."""
        accounting = record.accounting
        if accounting is not None:
            series = self._domains[accounting.domain]
        else:
            series = self._domains[""]
            self._unmatched += record.request is not None and record.reason not in _WITHOUT_RULES
        seconds = record.end - record.start
        series.seconds += seconds
        series.bytes += record.bytes
        cell = record.status // 100 * _WIDTH + bisect_left(SECONDS, seconds)
        series.counts[cell] += 1
        self._all.counts[cell] += 1
        if record.wait:
            series.waits += record.wait
            cell = bisect_left(SECONDS, record.wait)
            series.wait_counts[cell] += 1
            self._all.wait_counts[cell] += 1
        first_byte = record.upstream_first_byte
        if first_byte:
            origin = self._origins[record.upstream]
            seconds = first_byte - record.upstream_start
            origin.seconds += seconds
            cell = record.upstream_status // 100 * _WIDTH + bisect_left(SECONDS, seconds)
            origin.counts[cell] += 1
            self._upstream.counts[cell] += 1
        if record.reason not in SERVED:
            self.refused.append(record)
        if record.status >= 500 and record.reason not in REFUSED:
            series.failed += 1

    def totals(self) -> dict[str, Any]:
        """Return the sums over all domains and origins, which cost the same however many there are: responses by class,
        responses of origins by class, and histograms of their seconds."""
        classes = {f"status_{name}": count for name, count in self._all.classes().items()}
        upstream = {f"upstream_{name}": count for name, count in self._upstream.classes().items()}
        histograms = {"seconds": self._all, "upstream_seconds": self._upstream}
        buckets = {name: [sum(one.counts[at::_WIDTH]) for at in range(_WIDTH)] for name, one in histograms.items()}
        return classes | upstream | buckets | {"wait_seconds": list(self._all.wait_counts)}

    def failed(self, domain: str) -> int:
        """Return the number of responses of a domain with a status of 500 or more, without rejections."""
        return self._domains[domain].failed

    def origin_totals(self, pool: UpstreamPool) -> list[int]:
        """Return the responses of an origin, those of status 500 or more, its failures, and milliseconds in total."""
        series = self._origins[pool.name]
        failed = sum(series.counts[5 * _WIDTH :])
        return [sum(series.counts), failed, sum(pool.failures.values()), round(1000 * series.seconds)]

    def read(self, domains: Iterable[str], pools: Iterable[UpstreamPool]) -> RequestCounters:
        """Return what was counted, and the failures of these origins.

        These domains and origins are in it from the start, so that their first requests are seen as an increase.
        """
        names = dict.fromkeys(["", *domains, *self._domains])
        by_domain = {name or "none": self._domains[name] for name in names}
        failures = {pool.name: pool.failures for pool in pools}
        origins = {name: self._origins[name] for name in failures}
        return RequestCounters(
            responses={name: series.classes() for name, series in by_domain.items()},
            response_bytes={name: series.bytes for name, series in by_domain.items()},
            response_seconds={name: series.durations() for name, series in by_domain.items()},
            wait_seconds={name: series.wait_durations() for name, series in by_domain.items()},
            upstream_responses={name: series.classes() for name, series in origins.items()},
            upstream_seconds={name: series.durations() for name, series in origins.items()},
            upstream_failures=failures,
            unmatched_requests=self._unmatched,
        )
