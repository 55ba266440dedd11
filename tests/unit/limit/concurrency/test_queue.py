"""The order of the requests that wait."""

import pytest

from headgate.limit.concurrency import PRIORITIES, Priority, Waiting
from headgate.limit.concurrency.queue import MAX_REMEMBERED, Line, PriorityQueue


def request(flow: str, priority: Priority = "people") -> Waiting:
    return Waiting("", priority, flow.encode(), 0.0)


def line_of(flows: str) -> Line:
    line = Line()
    for flow in flows:
        line.add(request(flow))
    return line


def order(line: Line, *, newest: bool) -> str:
    """Return the flows in the order in which their requests start."""
    return "".join(line.start(newest=newest).flow.decode() for _ in range(len(line)))


@pytest.mark.parametrize(
    ("arrivals", "oldest_first", "newest_first"),
    [
        ("abc", "abc", "cba"),
        ("aaabbc", "abcaba", "cbaaba"),
        ("aaaab", "abaaa", "baaaa"),
    ],
)
def test_flows_take_turns(arrivals: str, oldest_first: str, newest_first: str) -> None:
    assert order(line_of(arrivals), newest=False) == oldest_first
    assert order(line_of(arrivals), newest=True) == newest_first


def test_the_newest_request_of_a_flow_is_first_or_last() -> None:
    for newest in (False, True):
        line, requests = Line(), [request("a") for _ in range(3)]
        for one in requests:
            line.add(one)
        started = [line.start(newest=newest) for _ in requests]
        assert started == (requests[::-1] if newest else requests)


def test_a_flow_that_was_away_is_before_one_that_has_had_more_starts() -> None:
    line = line_of("aaaa")
    assert order_of(line, 2) == "aa"
    line.add(request("b"))
    assert order_of(line, 1) == "b"
    line.add(request("b"))
    assert order_of(line, 2) == "ba"


def order_of(line: Line, number: int) -> str:
    return "".join(line.start(newest=False).flow.decode() for _ in range(number))


def test_starts_are_forgotten_by_halves() -> None:
    line = line_of("aaaaaa")
    order_of(line, 4)
    line.forget()  # a has had two
    line.forget()  # one
    for flow in "bb":
        line.add(request(flow))
    assert order_of(line, 4) == "baba"


def test_no_more_flows_are_remembered_than_the_bound() -> None:
    line = Line()
    for number in range(MAX_REMEMBERED + 10):
        line.add(request(str(number)))
        line.start(newest=False)
    assert len(line._starts) <= MAX_REMEMBERED


def test_the_newest_request_of_the_longest_flow_gives_way() -> None:
    line = Line()
    requests = [request(flow) for flow in "abbcaa"]
    for one in requests:
        line.add(one)
    assert line.newest_of_longest is requests[-1]
    assert line.victim(request("c")) is requests[-1]
    line.remove(requests[-1])
    assert line.newest_of_longest is requests[4]
    assert line.victim(new := request("b")) is new  # it would be the longest
    assert line.victim(other := request("c")) is other  # as long as the others
    assert line.victim(request("d")) is requests[4]


def test_a_request_gives_way_to_one_of_a_more_important_class_only() -> None:
    line = line_of("a")
    assert line.victim(new := request("b")) is new
    assert line.victim(request("b", "verified")) is line.oldest


def test_the_classes_are_in_order() -> None:
    queue = PriorityQueue()
    requests = {priority: request("a", priority) for priority in PRIORITIES}
    for one in requests.values():
        queue.add(one)
    assert [queue.ahead(rank) for rank in range(4)] == [1, 2, 3, 4]
    assert queue.lowest(0) == 3
    assert queue.remove(requests["prefetch"])
    assert not queue.remove(requests["prefetch"])
    assert [queue.lowest(rank) for rank in range(4)] == [2, 2, 2, 3]
    assert queue.start(0, newest=False) is requests["people"]
    assert queue.length == 2
