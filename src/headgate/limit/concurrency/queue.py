"""The queue of a concurrency limit: classes in the order of their priority, and in each class equal parts for flows.

Within a class, the flow with the fewest recent starts is next; of several such flows the one that has waited longest,
or the newest one while the origin is overloaded. So a flow that sends more than others gets no more than they do, also
if its requests are the only ones that never leave the queue. What a flow has got is remembered for a while, and no
longer: see `Line.forget`.

This module knows neither the limit nor the time.
"""

from collections import OrderedDict
from heapq import heappop, heappush
from typing import Final

from headgate.limit.concurrency.values import PRIORITIES, Priority, Waiting

MAX_REMEMBERED: Final = 10_000
"""Flows whose starts are remembered: untrusted input chooses how many there are."""


class _Ranking:
    """Flows, each with a number; the flows with the least number are found without a search."""

    def __init__(self) -> None:
        self._flows: dict[int, OrderedDict[bytes, None]] = {}  # by their number, in the order in which they were put
        self._numbers: list[int] = []  # the keys of `_flows`, as a heap

    def put(self, flow: bytes, number: int) -> None:
        flows = self._flows.get(number)
        if flows is None:
            flows = self._flows[number] = OrderedDict()
            heappush(self._numbers, number)
        flows[flow] = None

    def remove(self, flow: bytes, number: int) -> None:
        del self._flows[number][flow]

    def first(self, *, newest: bool) -> bytes:
        """Return the flow with the least number; of several the one put last, or first."""
        while not (flows := self._flows[self._numbers[0]]):
            del self._flows[heappop(self._numbers)]
        return next(reversed(flows) if newest else iter(flows))


class Line:
    """The waiting requests of one class."""

    def __init__(self) -> None:
        self._requests: OrderedDict[Waiting, None] = OrderedDict()  # in the order of arrival
        self._flows: dict[bytes, OrderedDict[Waiting, None]] = {}
        self._starts: dict[bytes, int] = {}
        self._by_starts = _Ranking()
        self._by_length = _Ranking()  # by the negative number of waiting requests

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, request: Waiting) -> bool:
        return request in self._requests

    @property
    def oldest(self) -> Waiting:
        """The request that has waited longest; there must be one."""
        return next(iter(self._requests))

    def add(self, request: Waiting) -> None:
        """Add a request behind those of its flow."""
        flow = request.flow
        self._requests[request] = None
        requests = self._flows.get(flow)
        if requests is None:
            requests = self._flows[flow] = OrderedDict()
            self._by_starts.put(flow, self._starts.get(flow, 0))
        else:
            self._by_length.remove(flow, -len(requests))
        requests[request] = None
        self._by_length.put(flow, -len(requests))

    def remove(self, request: Waiting) -> None:
        """Remove a request, which must be there."""
        flow = request.flow
        del self._requests[request]
        requests = self._flows[flow]
        self._by_length.remove(flow, -len(requests))
        del requests[request]
        if requests:
            self._by_length.put(flow, -len(requests))
        else:
            del self._flows[flow]
            self._by_starts.remove(flow, self._starts.get(flow, 0))

    def start(self, *, newest: bool) -> Waiting:
        """Remove and return the request that is next, and count a start of its flow."""
        flow = self._by_starts.first(newest=newest)
        requests = self._flows[flow]
        request = next(reversed(requests) if newest else iter(requests))
        self.remove(request)
        starts = self._starts.get(flow, 0)
        if requests:
            self._by_starts.remove(flow, starts)
            self._by_starts.put(flow, starts + 1)
        self._starts[flow] = starts + 1
        if len(self._starts) > MAX_REMEMBERED:
            self.forget()
        return request

    @property
    def newest_of_longest(self) -> Waiting:
        """The newest request of the flow with the most waiting ones; of several flows, of the one added to last."""
        return next(reversed(self._flows[self._by_length.first(newest=True)]))

    def victim(self, request: Waiting) -> Waiting:
        """Return which request gives way to a new one: that of the longest flow, unless the new one's is as long."""
        if self._requests:
            longest = self.newest_of_longest
            is_other_class = longest.priority != request.priority
            if is_other_class or len(self._flows[longest.flow]) > len(self._flows.get(request.flow, ())) + 1:
                return longest
        return request

    def forget(self) -> None:
        """Count half of each flow's starts from now on."""
        self._starts = {flow: starts // 2 for flow, starts in self._starts.items() if starts > 1}
        self._by_starts = _Ranking()
        for flow in self._flows:
            self._by_starts.put(flow, self._starts.get(flow, 0))


class PriorityQueue:
    """The lines of all classes."""

    def __init__(self) -> None:
        self.lines: tuple[Line, ...] = tuple(Line() for _ in PRIORITIES)
        """Those of more important classes first."""
        self.length = 0
        """The number of waiting requests."""

    def add(self, request: Waiting) -> None:
        """Add a request."""
        self.lines[RANKS[request.priority]].add(request)
        self.length += 1

    def remove(self, request: Waiting) -> bool:
        """Remove a request; returns whether it was there."""
        line = self.lines[RANKS[request.priority]]
        if request not in line:
            return False
        line.remove(request)
        self.length -= 1
        return True

    def start(self, rank: int, *, newest: bool) -> Waiting:
        """Remove and return the request of a class that is next."""
        self.length -= 1
        return self.lines[rank].start(newest=newest)

    def ahead(self, rank: int) -> int:
        """Return the number of waiting requests of a class and of those above it."""
        if rank == len(self.lines) - 1 or not self.length:
            return self.length
        return sum(map(len, self.lines[: rank + 1])) if rank else len(self.lines[0])

    def lowest(self, rank: int) -> int:
        """Return the rank of the least important class that has a waiting request, at least `rank`."""
        if self.length:
            for number in range(len(self.lines) - 1, rank, -1):
                if self.lines[number]:
                    return number
        return rank


RANKS: Final[dict[Priority, int]] = {priority: rank for rank, priority in enumerate(PRIORITIES)}
"""The rank of each class: 0 for the most important one."""
