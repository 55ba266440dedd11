"""What it costs to share a throttle: the same calls on one with a file and on one in memory, side by side.

A request is a question and the response's being taken note of, with ten response fields such as servers send. Healthy
ones are asked for URLs that nothing is known of, with nothing kept at all and with ten thousand targets that fail; then
each response is a failure, and counts once it is in the file. The last rows have other processes at the same file: how
long it takes until one of them knows of another's failure, how long several take for what one takes so long for, and
what a process costs that does nothing. Before a time counts, both throttles have to answer alike, and the file has to
hold what was told and nothing else.
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

FAILING = 10_000
POLICY = Policy(num_errors_to_ignore=0)
OTHER = "https://other.example/x"
PROCESSES = 4
SCRIPT = f"""
import sys
from headgate.agent import SharedThrottle
with SharedThrottle(sys.argv[1]) as throttle:
    print(throttle.explain({OTHER!r}, now={NOW}).failures, flush=True)
    for number in range(int(sys.stdin.readline())):
        throttle.response_received({OTHER!r}, 503, {{}}, now={NOW})
        if number % 1000 == 999:
            throttle.synchronize(60.0)
    throttle.synchronize(60.0)
    print(throttle.postponed + throttle.lost, flush=True)
"""


def failing(number: int) -> str:
    """Give the URL of one of many targets."""
    return f"https://www.example.com/{number}"


def seconds_each(throttle: Throttle, urls: Iterator[str], status: int, count: int) -> float:
    """Give the seconds of CPU that a question and a response together take, until what was learned is in the file."""
    ask, note = throttle.release_time, throttle.response_received
    start = time.process_time()
    for _ in range(count):
        url = next(urls)
        ask(url, now=NOW)
        note(url, status, FIELDS, now=NOW)
    if isinstance(throttle, SharedThrottle):
        throttle.synchronize(60.0)
    return (time.process_time() - start) / count


def seconds_until_known(asked: Throttle, told: Throttle, number: int) -> float:
    """Give the seconds until one throttle knows of a failure that another was told."""
    url = f"https://news.example.com/{number}"
    start = time.perf_counter()
    told.response_received(url, 503, FIELDS, now=NOW)
    while asked.release_time(url, now=NOW) <= NOW:
        time.sleep(0.0005)
    return time.perf_counter() - start


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
        shared.synchronize(60.0)
        yield shared, plain
        shared.synchronize(60.0)
        alike = (len(shared), shared.trouble, shared.postponed, shared.lost) == (len(plain), "", 0, 0)
        verify("both hold as many, and the file was never in the way", right=alike)


def healthy(path: Path, rounds: int) -> Iterator[Row]:
    """Measure requests that change nothing."""
    for what, count, target in (("healthy request", 0, 2.0), (f"… with {FAILING:,} failing targets", FAILING, 2.0)):
        file = path.with_name(f"healthy-{count}")
        with pair(file, count) as both, SharedThrottle(file) as other:
            shared, plain = (one_side(throttle, cycle([URL]), 200, 20_000) for throttle in both)
            yield row(what, compare(shared, plain, rounds=rounds), target)
            verify(
                "nothing is kept of what is healthy",
                right=other.synchronize(60.0) and len(both[0]) == count and len(other) == len(both[0]),
            )


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
            verify("and one that comes later knows", right=late.explain(failing(7), now=NOW) == told[0])


def known(path: Path, rounds: int) -> Iterator[Row]:
    """Measure how long it takes until another process knows of a failure."""
    with pair(path, FAILING) as (shared, _), SharedThrottle(path, POLICY, draw=lambda: 0.0) as told:
        each = sorted(seconds_until_known(shared, told, number) * 1e3 for number in range(20 * rounds))
        shared.reset()  # so that both of the pair hold as many again
        for number in range(FAILING):
            shared.response_received(failing(number), 503, {}, now=NOW)
        context = f"best {each[0]:.1f}, median {each[len(each) // 2]:.1f}, worst {each[-1]:.1f} of {len(each)}"
        yield Row(
            "ms until another knows of a failure, 95 of 100", "none", each[len(each) * 95 // 100], "≤", 100.0, context
        )


def idle(path: Path, rounds: int) -> Iterator[Row]:
    """Measure what a process costs that shares a throttle and sends nothing."""
    with pair(path, FAILING) as (shared, _):
        shared.synchronize(60.0)
        costs = []
        for _ in range(rounds):
            start, cpu = time.perf_counter(), time.process_time()
            time.sleep(1.0)
            costs.append((time.process_time() - cpu) / (time.perf_counter() - start) * 1e3)
        yield Row("ms of CPU a second, idle", "none", median(costs), "≤", 10.0, f"{rounds} rounds")


def reading(path: Path, rounds: int) -> Iterator[Row]:
    """Measure how long one that comes late takes to know it all, and how large the file is."""
    with pair(path, FAILING) as both:
        before = both[0].explain(failing(7), now=NOW)
    names = sum(len(failing(number)) for number in range(FAILING))
    size = (path.stat().st_size - names) / FAILING
    yield Row("bytes of a failing target in the file", "none", size, "≤", 250.0, f"{FAILING:,} targets, without names")

    def late() -> float:
        start = time.process_time()
        with SharedThrottle(path, POLICY) as throttle:
            took = time.process_time() - start
            found = throttle.explain(failing(7), now=NOW)
            verify("it knows what was told before", right=found == before and len(throttle) == FAILING)
        return took * 1e6 / FAILING

    each = sorted(late() for _ in range(rounds))
    context = f"best {each[0]:.2f}, worst {each[-1]:.2f} of {rounds} rounds"
    yield Row("µs of CPU a target to read all anew", "none", each[rounds // 2], "≤", 20.0, context)


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
    for measure in (healthy, failed, known, idle, reading, together):
        with TemporaryDirectory() as folder:
            rows += measure(Path(folder, "file"), rounds)
    return rows
