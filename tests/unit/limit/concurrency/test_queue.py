"""The order of the requests that wait."""

import pytest

from headgate.limit.concurrency import PRIORITIES, Priority, Waiting
from headgate.limit.concurrency.queue import Line, PriorityQueue


def request(flow: str, priority: Priority = "people") -> Waiting:
    return Waiting(priority, flow.encode(), 0.0)


def line_of(flows: str) -> tuple[Line, list[Waiting]]:
    line, requests = Line(), [request(flow) for flow in flows]
    for one in requests:
        line.add(one)
    return line, requests


@pytest.mark.parametrize(
    ("arrivals", "order"), [("abc", "abc"), ("aaabbc", "abcaba"), ("aaaab", "abaaa"), ("baab", "baba")]
)
def test_flows_take_turns(arrivals: str, order: str) -> None:
    line, _ = line_of(arrivals)
    assert "".join(line.start().flow.decode() for _ in arrivals) == order
    assert len(line) == 0


def test_the_requests_of_a_flow_start_in_their_order() -> None:
    line, requests = line_of("aaa")
    assert line.oldest is requests[0]
    assert [line.start() for _ in requests] == requests


def test_a_flow_that_returns_is_behind_the_others() -> None:
    line, _ = line_of("ab")
    line.start()
    line.add(request("a"))
    assert line.start().flow == b"b"


def test_the_newest_request_of_the_longest_flow_gives_way() -> None:
    line, requests = line_of("abbcaa")
    assert line.newest_of_longest is requests[-1]
    assert line.victim(request("c")) is requests[-1]
    line.remove(requests[-1])
    assert line.victim(new := request("b")) is new, "it would be the longest"
    assert line.victim(other := request("c")) is other, "as long as the others"
    assert line.victim(request("d")) in requests


def test_the_classes_are_in_order() -> None:
    queue = PriorityQueue()
    requests = {priority: request("a", priority) for priority in PRIORITIES}
    for one in requests.values():
        queue.add(one)
    assert [queue.ahead(rank) for rank in range(4)] == [1, 2, 3, 4]
    assert queue.victim(request("a")) is requests["prefetch"]
    assert queue.remove(requests["prefetch"])
    assert not queue.remove(requests["prefetch"])
    assert queue.victim(request("a", "verified")) is requests["automated"]
    assert queue.victim(new := request("b", "automated")) is new
    assert queue.victim(low := request("b", "prefetch")) is low
    assert queue.start() is requests["people"]
    assert queue.length == 2
