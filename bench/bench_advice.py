"""Reading traffic advice, from bytes to the entry for one agent, and asking the cache for what it knows.

The peer of the reading is Python's own `json.loads` of the same bytes, which checks less and finds no entry;
the bounds are absolute, in microseconds.
"""

import json
import time
from collections.abc import Callable
from functools import partial

from bench.measure import Row, compare, verify
from headgate.advice import AdviceCache, AgentIdentity, Entry, document
from headgate.advice.cache import Fetch
from headgate.advice.decision import Advice
from headgate.advice.fetching import AdviceResponse
from headgate.advice.parser import AdviceEntry, parse_advice_bytes

IDENTITY = AgentIdentity.of("ExampleProxy", prefetch_proxy=True)
DOCUMENT = document([Entry("prefetch-proxy", fraction=0.25), Entry("BadBot", disallow=True), Entry("*")])
TYPED = [("Content-Type", "application/trafficadvice+json")]
COUNT = 20_000
ORIGINS = [f"https://{number}.example" for number in range(1_000)]


def microseconds(act: Callable[[], object], count: int = COUNT) -> float:
    """Give the microseconds that one act takes."""
    start = time.perf_counter()
    for _ in range(count):
        act()
    return (time.perf_counter() - start) / count * 1e6


def filled(now: float) -> AdviceCache:
    """Give a cache that knows every origin's advice, fetched at `now`."""
    cache = AdviceCache(IDENTITY)
    for origin in ORIGINS:
        fetch = cache.ask(origin, now=now)
        assert isinstance(fetch, Fetch)
        cache.received(fetch, AdviceResponse(200, TYPED, DOCUMENT), now=now)
    return cache


def ask_of_all(cache: AdviceCache, now: float) -> None:
    """Ask for the advice of every origin in turn."""
    for origin in ORIGINS:
        cache.ask(origin, now=now)


def run(rounds: int) -> list[Row]:
    """Give a row for the reading and one for the asking."""
    read = partial(parse_advice_bytes, DOCUMENT, IDENTITY)
    verify("the agent's entry is found", right=read() == AdviceEntry(fraction=0.25))
    parsed = compare(partial(microseconds, read), partial(microseconds, partial(json.loads, DOCUMENT)), rounds=rounds)
    context = f"{len(DOCUMENT)} bytes; {parsed.peer:.2f} us for json.loads, of which it is {parsed.ratio:.2f} times"
    rows = [Row("us to parse an advice document", "none", parsed.ours, "≤", 5.0, context)]

    now = 1_700_000_000.0
    cache = filled(now)
    answers = [cache.ask(origin, now=now + 1) for origin in ORIGINS]
    fresh = [isinstance(answer, Advice) and answer.result == AdviceEntry(fraction=0.25) for answer in answers]
    verify("every origin's advice is known", right=all(fresh))
    asking = partial(ask_of_all, cache, now + 1)
    asked = min(microseconds(asking, COUNT // len(ORIGINS)) / len(ORIGINS) for _ in range(rounds))
    rows.append(Row("us to ask for advice that is fresh", "none", asked, "≤", 1.0, f"{len(ORIGINS)} origins in turn"))
    return rows
