"""The queue of a concurrency limit: classes in the order of their priority, and in each class equal parts for flows.

Within a class the flows take turns (fair queueing: J. Nagle, RFC 970), so a flow that sends more than others gets no
more than they do. Each operation takes constant time, but for the choice of a victim among several flows.

This module knows neither the limit nor the time.
"""

from collections import OrderedDict

from headgate.limit.concurrency.values import PRIORITIES, RANKS, Waiting


class Line:
    """The waiting requests of one class."""

    def __init__(self) -> None:
        self._requests: OrderedDict[Waiting, None] = OrderedDict()  # in the order of arrival
        self._flows: OrderedDict[bytes, OrderedDict[Waiting, None]] = OrderedDict()  # in the order of their turns

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, request: Waiting) -> bool:
        return request in self._requests

    @property
    def oldest(self) -> Waiting:
        """The request that has waited longest; there must be one."""
        return next(iter(self._requests))

    @property
    def newest_of_longest(self) -> Waiting:
        """The newest request of the flow with the most waiting ones."""
        longest = max(self._flows.values(), key=len)
        return next(reversed(longest))

    def add(self, request: Waiting) -> None:
        """Add a request behind those of its flow."""
        self._requests[request] = None
        self._flows.setdefault(request.flow, OrderedDict())[request] = None

    def remove(self, request: Waiting) -> None:
        """Remove a request, which must be there."""
        del self._requests[request]
        requests = self._flows[request.flow]
        del requests[request]
        if not requests:
            del self._flows[request.flow]

    def start(self) -> Waiting:
        """Remove and return the request that is next; the other flows come before further ones of its flow."""
        flow, requests = next(iter(self._flows.items()))
        request = next(iter(requests))
        self._flows.move_to_end(flow)
        self.remove(request)
        return request

    def victim(self, request: Waiting) -> Waiting:
        """Return which request gives way to a new one of this class: itself, or one of a longer flow."""
        length = len(self._flows.get(request.flow, ()))
        if not self._flows or (length + 1) * len(self._flows) > len(self._requests):
            return request  # its flow has its part
        longest = self.newest_of_longest
        return longest if len(self._flows[longest.flow]) > length + 1 else request


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

    def start(self) -> Waiting:
        """Remove and return the request that is next; there must be one."""
        self.length -= 1
        return next(line for line in self.lines if line).start()

    def ahead(self, rank: int) -> int:
        """Return the number of waiting requests of a class and of those above it."""
        return sum(map(len, self.lines[: rank + 1]))

    def victim(self, request: Waiting) -> Waiting:
        """Return which request gives way to a new one: one of the least important class."""
        rank = RANKS[request.priority]
        lower = next((line for line in self.lines[:rank:-1] if line), None)
        return self.lines[rank].victim(request) if lower is None else lower.newest_of_longest
