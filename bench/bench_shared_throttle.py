"""What it costs to share a throttle: the same calls on one with a file and on one in memory, side by side.

A request is a question and the response's being taken note of, with ten response fields such as servers send. Healthy
ones are asked for URLs that nothing is known of, with nothing kept at all and with ten thousand targets that fail; then
each response is a failure, which has to be written down. The last rows have other processes at the same file: what a
question costs that another's failure came before, and how long several take for what one takes so long for. Before a
time counts, both throttles have to answer alike, and the file has to hold what was told and nothing else.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.bench_throttle import FIELDS, NOW, URL
from bench.measure import Comparison, Row, compare, verify
from headgate.agent import SharedThrottle
from headgate.throttle import Policy, Throttle

__all__ = ["run"]

FAILING = 10_000
POLICY = Policy(num_errors_to_ignore=0)
OTHER = "https://other.example/x"
PROCESSES = 4
SCRIPT = f"""
import sys
from headgate.agent import SharedThrottle
with SharedThrottle(sys.argv[1]) as throttle:
    print(throttle.explain({OTHER!r}, now={NOW}).failures, flush=True)
    for _ in range(int(sys.stdin.readline())):
        throttle.response_received({OTHER!r}, 503, {{}}, now={NOW})
    print(throttle.postponed + throttle.lost, flush=True)
"""


def failing(number: int) -> str:
    """Give the URL of one of many targets."""
    return f"https://www.example.com/{number}"


def seconds_each(throttle: Throttle, urls: Iterator[str], status: int, count: int) -> float:
    """Give the seconds that a question and a response together take."""
    ask, note = throttle.release_time, throttle.response_received
    start = time.perf_counter()
    for _ in range(count):
        url = next(urls)
        ask(url, now=NOW)
        note(url, status, FIELDS, now=NOW)
    return (time.perf_counter() - start) / count


def seconds_after_news(throttle: Throttle, told: Throttle, count: int = 500) -> float:
    """Give the seconds that a question takes, at the median, when something was told just before, to `told`."""
    took = []
    for _ in range(count):
        told.response_received(OTHER, 503, FIELDS, now=NOW)
        start = time.perf_counter()
        throttle.release_time(URL, now=NOW)
        took.append(time.perf_counter() - start)
    return median(took)


def row(what: str, figures: Comparison, target: float) -> Row:
    """Lay out what a call costs on either throttle."""
    context = f"{figures.ours * 1e6:.2f} µs shared, {figures.peer * 1e6:.2f} µs in memory"
    return Row(what, "in memory", figures.ratio, "≤", target, context)


@contextmanager
def pair(path: Path, count: int) -> Iterator[tuple[SharedThrottle, Throttle]]:
    """Give a throttle with a file and one without, in each of which so many targets fail."""
    with SharedThrottle(path, POLICY, draw=lambda: 0.0) as shared:
        plain = Throttle(POLICY, draw=lambda: 0.0)
        for number in range(count):
            for throttle in (shared, plain):
                throttle.response_received(failing(number), 503, {}, now=NOW)
        yield shared, plain
        alike = (len(shared), shared.trouble, shared.postponed, shared.lost) == (len(plain), "", 0, 0)
        verify("both hold as many, and the file was never in the way", right=alike)


def healthy(path: Path, rounds: int) -> Iterator[Row]:
    """Measure requests that change nothing."""
    for what, count, target in (("healthy request", 0, 30.0), (f"… with {FAILING:,} failing targets", FAILING, 12.0)):
        with pair(path.with_name(f"healthy-{count}"), count) as both, SharedThrottle(path) as stranger:
            shared, plain = (one_side(throttle, cycle([URL]), 200, 20_000) for throttle in both)
            yield row(what, compare(shared, plain, rounds=rounds), target)
            verify("nothing is kept of what is healthy", right=len(both[0]) == count and len(stranger) == 0)


def one_side(throttle: Throttle, urls: Iterator[str], status: int, count: int) -> Callable[[], float]:
    """Make what measures one of the two."""
    return lambda: seconds_each(throttle, urls, status, count)


def failed(path: Path, rounds: int) -> Iterator[Row]:
    """Measure requests whose failure has to be written down."""
    with pair(path, FAILING) as both:
        shared, plain = (one_side(throttle, cycle(map(failing, range(FAILING))), 503, 2_000) for throttle in both)
        yield row(f"request that fails, {FAILING:,} failing targets", compare(shared, plain, rounds=rounds), 20.0)
        told = [throttle.explain(failing(7), now=NOW) for throttle in both]
        verify("both have counted alike", right=told[0] == told[1] and told[0].failures > 1)
        with SharedThrottle(path, POLICY) as late:
            verify("and whoever comes later knows", right=late.explain(failing(7), now=NOW) == told[0])


def after_news(path: Path, rounds: int) -> Iterator[Row]:
    """Measure questions that another's failure comes just before."""
    with pair(path, FAILING) as (shared, plain), SharedThrottle(path, POLICY, draw=lambda: 0.0) as told:
        figures = compare(
            lambda: seconds_after_news(shared, told), lambda: seconds_after_news(plain, plain), rounds=rounds
        )
        known = [throttle.explain(OTHER, now=NOW) for throttle in (shared, plain)]
        verify("each failure was known to the one asked", right=known[0] == known[1])
        yield row("question after another's failure", figures, 60.0)


def reading(path: Path, rounds: int) -> Iterator[Row]:
    """Measure how long one that comes late takes to know it all, and how large the file is."""
    with pair(path, FAILING) as both:
        known = both[0].explain(failing(7), now=NOW)
    names = sum(len(failing(number)) for number in range(FAILING))
    size = (path.stat().st_size - names) / FAILING
    yield Row("bytes of a failing target in the file", "none", size, "≤", 250.0, f"{FAILING:,} targets, without names")

    def late() -> float:
        with SharedThrottle(path, POLICY) as throttle:
            start = time.perf_counter()
            told = throttle.explain(failing(7), now=NOW)
            took = time.perf_counter() - start
            verify("it knows what was told before", right=told == known and len(throttle) == FAILING)
        return took * 1e6 / FAILING

    each = sorted(late() for _ in range(rounds))
    context = f"best {each[0]:.2f}, worst {each[-1]:.2f} of {rounds} rounds"
    yield Row("µs a target to read all anew", "none", each[rounds // 2], "≤", 20.0, context)


def seconds_of(path: Path, processes: int, failures: int) -> float:
    """Give the seconds that several processes take for so many failures each."""
    with ExitStack() as stack:
        before, running = 0, []
        for _ in range(processes):
            command = [sys.executable, "-c", SCRIPT, str(path)]
            process = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            running.append(stack.enter_context(process))
        for each in running:
            before = int(told(each))
        start = time.perf_counter()
        for each in running:
            assert each.stdin is not None
            each.stdin.write(f"{failures}\n")
            each.stdin.flush()
        verify("nothing was put off or lost", right=[told(each) for each in running] == ["0"] * processes)
        took = time.perf_counter() - start
    with SharedThrottle(path) as throttle:
        after = throttle.explain(OTHER, now=NOW).failures
    verify("every failure was counted", right=after == before + processes * failures)
    return took


def told(process: "subprocess.Popen[str]") -> str:
    """Give the next line of a process."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def together(path: Path, rounds: int) -> Iterator[Row]:
    """Measure several processes that all fail at once."""
    failures = 8_000
    figures = compare(
        lambda: seconds_of(path, PROCESSES, failures // PROCESSES),
        lambda: seconds_of(path, 1, failures),
        rounds=min(rounds, 3),
    )
    context = f"{failures / figures.ours:,.0f} failures a second, {failures / figures.peer:,.0f} by one"
    yield Row(f"{PROCESSES} processes that fail at once", "one process", figures.ratio, "≤", 4.0, context)


def run(rounds: int) -> list[Row]:
    """Give a row for each."""
    rows: list[Row] = []
    for measure in (healthy, failed, after_news, reading, together):
        with TemporaryDirectory() as folder:
            rows += measure(Path(folder, "file"), rounds)
    return rows
