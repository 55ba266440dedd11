"""A master that shares its records through Redis, in batches, against redis-py with one script call per decision.

The algorithm is gcra, for which the peer's script is short: a read, two sums and a write. Ours are the functions that a
`RedisStore` calls for the records of a `SharedMaster`, whose own decisions, queue and event loop count, too. Both use
one connection to the same server, and must answer as a master in memory does, in the run that is measured.

The ratio is one of CPU time, so that other load on the machine does not count. Our client and the server work at the
same time: a record takes as long as the slower of them. The peer and the server take turns: a call takes as long as
both. With a core for each process that is the elapsed time without the waits, which the peer has and we do not.
"""

import asyncio
import gc
import struct
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.measure import Absent, Row, compare, verify
from headgate.config.store_url import StoreUrl
from headgate.limit import DelayUntil, Domain, Master, Rule
from headgate.limit.history import ALGORITHMS
from headgate.release import ASAP, Status
from headgate.runtime.lifecycle import event_loop_factory
from headgate.store import RedisStore, SharedMaster
from tests import servers

NOW = 1_700_000_000.0
DECISIONS = 6_000
"""Script calls of one round."""
RECORDS = 120_000
"""Records that are shared in one round."""
PER_IDENTIFIER = 60
"""Requests of each identifier."""
MAX_DELAY = 5.0
_CHUNK = 256
_MAX_WAITING = 2_048
DOMAIN = Domain("api", (Rule.parse("10/s burst 20"),), "gcra")
_SCRIPT = """
local function advance(instant, seconds)
  local total = instant + seconds
  if total - instant > seconds or total - seconds > instant then
    local mantissa, exponent = math.frexp(total)
    return total - math.ldexp(1, exponent - (mantissa == 0.5 and 54 or 53))
  end
  return total
end
local now, interval, tolerance = struct.unpack('<ddd', ARGV[1])
local value = redis.call('GET', KEYS[1])
local arrival = value and struct.unpack('<d', value) or now
arrival = advance(math.max(arrival, now), interval)
redis.call('SET', KEYS[1], struct.pack('<d', arrival), 'PX', 62000)
return struct.pack('<d', advance(arrival, tolerance))
"""


@cache
def requests(count: int) -> list[tuple[bytes, float]]:
    """Return identifiers and times: `PER_IDENTIFIER` requests of each in two seconds, so that all are held."""
    identifiers = count // PER_IDENTIFIER
    return [(b"10.0.0.%d" % (number % identifiers), NOW + 2 * number / count) for number in range(count)]


def expected(count: int) -> dict[bytes, float]:
    """Return the holds that a master in memory computes."""
    master = Master([DOMAIN], max_delay=MAX_DELAY)
    latest: dict[bytes, float] = {}
    for identifier, now in requests(count):
        release = master.record("api", Status.ACCEPTED, identifier, now, now)
        latest[identifier] = max(latest.get(identifier, ASAP), release)
    return {identifier: release for identifier, release in latest.items() if release > ASAP}


class Shared:
    """A master with a store, in an event loop of its own."""

    def __init__(self, port: int) -> None:
        self.port = port

    def seconds_each(self, holds: dict[bytes, float]) -> float:
        """Share all records, in the event loop that servers use; return the seconds that each takes."""
        with asyncio.Runner(loop_factory=event_loop_factory("auto")) as runner:
            return runner.run(self._measure(holds))

    async def _measure(self, holds: dict[bytes, float]) -> float:
        url = StoreUrl.parse(f"redis://127.0.0.1:{self.port}")
        assert url is not None
        learned: list[DelayUntil] = []
        store = RedisStore(url, log=lambda _line: None, clock=lambda: NOW)
        master = SharedMaster([DOMAIN], store, max_identifiers=100_000, max_delay=MAX_DELAY)
        store.attach(master, learned.append)
        store.start()
        await _until(lambda: store.state == "up")
        counters, waiting = store.counters, requests(RECORDS)[::-1]
        start = time.perf_counter()
        while waiting:
            for identifier, now in reversed(waiting[-_CHUNK:]):
                master.record("api", Status.ACCEPTED, identifier, now, now)
            del waiting[-_CHUNK:]
            await _until(lambda: RECORDS - len(waiting) - counters.shared < _MAX_WAITING)
        await _until(lambda: counters.shared + counters.unshared + counters.lost == RECORDS)
        seconds = time.perf_counter() - start
        known = {control.identifier: control.release for control in master.holds("api", now=ASAP)}
        await store.close()
        verify("all are held", right=len(holds) == RECORDS // PER_IDENTIFIER)
        verify("every record was shared", right=counters.shared == RECORDS)
        verify("the master's holds are those of a master in memory", right=known == holds)
        verify("the store has nothing that its only master does not have", right=not learned)
        return seconds / RECORDS


async def _until(done: Callable[[], bool]) -> None:
    while not done():  # noqa: ASYNC110  # what it waits for has no event
        await asyncio.sleep(0.0005)


class Scripts:
    """A client that calls a script for each decision."""

    def __init__(self, port: int) -> None:
        from redis import Redis

        self.client = Redis(port=port)
        self._sha = self.client.script_load(_SCRIPT)
        (self._parameters,) = ALGORITHMS[DOMAIN.algorithm](DOMAIN.rules).parameters

    def decide(self, identifier: bytes, now: float) -> float:
        """Record a request; return the release."""
        argument = struct.pack("<ddd", now, *self._parameters)
        reply: bytes = self.client.evalsha(self._sha, 1, b"api:" + identifier, argument)
        return float(struct.unpack("<d", reply)[0])

    def seconds_each(self, holds: dict[bytes, float]) -> float:
        """Decide on requests one by one; return the seconds that each takes."""
        latest: dict[bytes, float] = {}
        start = time.perf_counter()
        for identifier, now in requests(DECISIONS):
            latest[identifier] = self.decide(identifier, now)
        seconds = (time.perf_counter() - start) / DECISIONS
        verify("all are held", right=len(holds) == DECISIONS // PER_IDENTIFIER)
        verify("the script's holds are those of a master in memory", right=latest == holds)
        return seconds


def run(rounds: int) -> list[Row]:
    """Give one row, in decisions a second."""
    if servers.find_program("redis-server") is None:
        raise Absent("redis-server is not installed; run make servers")
    elapsed: dict[str, list[float]] = {"ours": [], "peer": []}
    used: dict[str, list[tuple[float, float]]] = {"ours": [], "peer": []}
    with TemporaryDirectory() as folder, servers.redis(Path(folder)) as server:
        shared, scripts = Shared(server.port), Scripts(server.port)

        def cpu() -> tuple[float, float]:
            """Return the seconds of CPU that this process and the server have used."""
            report = scripts.client.info("cpu")
            return time.process_time(), float(report["used_cpu_user"] + report["used_cpu_sys"])

        def measure(side: str, seconds_each: Callable[[dict[bytes, float]], float], count: int) -> tuple[float, float]:
            """Return the seconds of CPU that client and server take for a decision, with an empty database."""
            holds = expected(count)
            scripts.client.flushdb()
            gc.collect()
            gc.freeze()  # as servers do; what the benchmark itself keeps is not to be looked at again and again
            before = cpu()
            elapsed[side].append(seconds_each(holds))
            client, served = ((after - start) / count for start, after in zip(before, cpu(), strict=True))
            used[side].append((client, served))
            return client, served

        with scripts.client:
            measured = compare(
                lambda: sum(measure("peer", scripts.seconds_each, DECISIONS)),
                lambda: max(measure("ours", shared.seconds_each, RECORDS)),
                rounds=rounds,
            )
    rates = {side: 1 / median(seconds) / 1e3 for side, seconds in elapsed.items()}
    costs = {
        side: " + ".join(f"{median(seconds) * 1e6:.1f}" for seconds in zip(*both, strict=True))
        for side, both in used.items()
    }
    context = (
        f"client + server {costs['ours']} µs against {costs['peer']} µs of CPU; "
        f"elapsed {rates['ours']:.0f}k/s against {rates['peer']:.0f}k/s"
    )
    return [Row("master on Redis, batched", "redis-py, EVALSHA", measured.ratio, "≥", 8.0, context)]
