"""One local decision against the `limits` library, in memory and in Redis.

Ours twice: the gatekeeper whose accounting is queued for a master elsewhere, which is the local decision, and the
gatekeeper with its master inside, which works out the rule's next release as well, everything one process needs. The
peer is `limits`' moving window, the strategy that keeps a log of timestamps as our `log` does. Each first has to let
through exactly a burst, and then to refuse.
"""

import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shutil import which

from limits import RateLimitItemPerSecond
from limits.storage import MemoryStorage, RedisStorage, Storage
from limits.strategies import MovingWindowRateLimiter

from bench.measure import Absent, Row, compare, verify
from headgate.limit import Accounting, Domain, Gatekeeper, Master, Rule
from headgate.release import Status

BURST = 100
IDENTIFIERS = [f"10.0.{number // 250}.{number % 250}" for number in range(1_000)]


def seconds_each(decide: Callable[[str], object], count: int) -> float:
    """Give the seconds one of `count` decisions takes, over all the identifiers in turn."""
    identifiers = (IDENTIFIERS * (count // len(IDENTIFIERS) + 1))[:count]
    start = time.perf_counter()
    for identifier in identifiers:
        decide(identifier)
    return (time.perf_counter() - start) / count


DOMAIN = Domain("api", (Rule(BURST, 1_000, BURST),))


def with_a_master_inside() -> Callable[[str], bool]:
    """Give a decision of the gatekeeper with its master inside, by the wall clock as the peer's is."""
    admit = Gatekeeper.embedded([DOMAIN], max_delay=0.0).admit

    def decide(identifier: str) -> bool:
        return admit("api", identifier, now=time.time()).status is Status.ACCEPTED

    return decide


def on_the_bus() -> tuple[Callable[[str], bool], Callable[[], None]]:
    """Give a decision of a gatekeeper whose accounting is queued, and what a master elsewhere does with the queue."""
    queue: deque[tuple[Accounting, float]] = deque(maxlen=10_000)
    gatekeeper = Gatekeeper(lambda accounting, now: queue.append((accounting, now)), max_delay=0.0)
    master, admit = Master([DOMAIN]), gatekeeper.admit

    def decide(identifier: str) -> bool:
        return admit("api", identifier, now=time.time()).status is Status.ACCEPTED

    def drain() -> None:
        while queue:
            control = master.account(*queue.popleft())
            if control is not None:
                gatekeeper.obey(control)

    return decide, drain


def theirs(storage: Storage) -> Callable[[str], bool]:
    """Give a decision of `limits` on `storage`."""
    limiter, item = MovingWindowRateLimiter(storage), RateLimitItemPerSecond(BURST)

    def decide(identifier: str) -> bool:
        return limiter.hit(item, "api", identifier)

    return decide


def lets_a_burst_through(decide: Callable[[str], bool], after: Callable[[], None] = lambda: None) -> bool:
    """Say whether of twice the burst at once exactly the burst is let through, with `after` called after each."""
    verdicts = []
    for _ in range(2 * BURST):
        verdicts.append(decide("somebody"))
        after()
    return verdicts == [True] * BURST + [False] * BURST


@contextmanager
def redis() -> Iterator[str]:
    """Run a Redis of our own on a socket in a temporary directory; give its address."""
    program = which("redis-server")
    if program is None:
        raise Absent("redis-server is not installed; run make servers")
    with tempfile.TemporaryDirectory() as directory:
        socket = Path(directory) / "redis.sock"
        command = [program, "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", directory]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            for _ in range(500):
                if socket.exists():
                    break
                time.sleep(0.01)
            yield f"redis+unix://{socket}"
        finally:
            process.terminate()
            process.wait(10)


def run(rounds: int) -> list[Row]:
    """Give a row for each of ours against each of the peer's storages."""
    rows = []
    queued, drain = on_the_bus()
    verify("the gatekeeper on a bus lets exactly a burst through", right=lets_a_burst_through(queued, drain))
    inside = with_a_master_inside()
    verify("the gatekeeper with a master inside does too", right=lets_a_burst_through(inside))
    with redis() as address:
        for what, mine in (("one local decision", queued), ("… with the master inside", inside)):
            for peer, storage, count, target in (
                ("limits, memory", MemoryStorage(), 20_000, 5.0),
                ("limits, Redis", RedisStorage(address), 2_000, 100.0),
            ):
                other = theirs(storage)
                verify(f"{peer} lets exactly a burst through", right=lets_a_burst_through(other))
                measured = compare(
                    partial(seconds_each, other, count), partial(seconds_each, mine, 20_000), rounds=rounds
                )
                context = f"{measured.peer * 1e6:.2f} us against {measured.ours * 1e6:.1f} us"
                rows.append(Row(f"{what}, times faster", peer, measured.ratio, "≥", target, context))
    return rows
