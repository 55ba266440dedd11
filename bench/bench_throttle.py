"""The throttle's own cost: time a request, bytes a failing target; no peer, only the bounds.

A request here is a question and the response's being taken note of, with ten response fields such as servers send. The
healthy throttle has nothing stored; the failing one has a million targets that fail, and is asked for one of its own
and for one that it does not know in turns. Before a time counts, both have to hold what they should and nothing else.
"""

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import cycle
from statistics import median

from bench.measure import Row, verify
from headgate.release import ASAP
from headgate.throttle import Policy, Throttle

FIELDS = {
    "Date": "Fri, 21 Nov 2025 00:02:00 GMT",
    "Server": "nginx",
    "Content-Type": "text/html; charset=utf-8",
    "Content-Length": "12345",
    "Content-Encoding": "gzip",
    "Cache-Control": "max-age=600",
    "ETag": '"5f3c-1"',
    "Vary": "Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
    "Last-Modified": "Thu, 20 Nov 2025 00:00:00 GMT",
}
URL = "https://www.example.com/a/page.html?from=here"
NOW = 1_763_683_200.0
FAILING = 1_000_000
WEIGHED = 200_000


def failing(count: int, url: Callable[[int], str]) -> Throttle:
    """Give a throttle in which so many targets have failed once more than is ignored."""
    throttle = Throttle(Policy(num_errors_to_ignore=0), draw=lambda: 0.0, max_targets=count)
    for number in range(count):
        throttle.response_received(url(number), 503, {}, now=NOW)
    return throttle


def seconds_each(throttle: Throttle, urls: Iterator[str], count: int = 100_000) -> float:
    """Give the seconds of CPU that a question and a success together take, over these URLs."""
    ask, note = throttle.release_time, throttle.response_received
    start = time.process_time()
    for _ in range(count):
        url = next(urls)
        ask(url, now=NOW)
        note(url, 200, FIELDS, now=NOW)
    return (time.process_time() - start) / count


def bytes_each(url: Callable[[int], str]) -> float:
    """Give the bytes that a failing target takes beyond the text of its URL."""
    urls = [url(number) for number in range(WEIGHED)]
    gc.collect()
    tracemalloc.start()
    try:
        # Each target is named by a text of its own, as it would be by a URL with a query.
        throttle = failing(WEIGHED, lambda number: urls[number] + "?")
        gc.collect()
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    verify("every failing target is stored", right=len(throttle) == WEIGHED)
    verify("and held", right=all(throttle.release_time(each, now=NOW) > NOW for each in urls))
    return (size - sum(map(len, urls))) / WEIGHED


def run(rounds: int) -> list[Row]:
    """Give a row for each bound."""
    healthy, crowded = Throttle(), failing(FAILING, "https://www.example.com/{}".format)
    verify("every failing target is stored", right=len(crowded) == FAILING)
    mixed = cycle(url for number in range(10_000) for url in (f"https://www.example.com/{number * 97}", URL))
    rows = []
    for what, throttle, urls, target in (
        # Of a whole request through a transport, which takes 70 µs without a network, these are a few hundredths.
        ("µs to check and observe, healthy", healthy, cycle([URL]), 3.0),
        ("… with a million failing targets", crowded, mixed, 10.0),
    ):
        each = [seconds_each(throttle, urls) * 1e6 for _ in range(rounds)]
        context = f"best {min(each):.2f}, worst {max(each):.2f} of {rounds} rounds"
        rows.append(Row(what, "none", median(each), "≤", target, context))
    verify("a healthy throttle stores nothing", right=len(healthy) == 0)
    verify("and holds nothing", right=healthy.release_time(URL, now=NOW) == ASAP)
    verify("a failing one still holds", right=crowded.release_time("https://www.example.com/1", now=NOW) > NOW)
    for what, url, target in (
        ("of one origin", "https://www.example.com/{}".format, 300.0),
        ("each of another origin", "https://{}.example.com/".format, 450.0),
    ):
        context = f"{WEIGHED:,} targets"
        rows.append(Row(f"bytes a failing target, {what}", "none", bytes_each(url), "≤", target, context))
    return rows
