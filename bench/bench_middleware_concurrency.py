"""An application with a concurrency limit in the middleware against the same application bare, in processor time.

Three applications: Starlette with one route, and one written against ASGI itself, which makes the limit's share as
large as it can be, both served by uvicorn on uvloop and httptools; and a WSGI application served by waitress. The limit
is learned, and never so low that a request waits: what is measured is what every request costs. The load is that of
`bench.bench_middleware`, in short turns, so that whatever else the machine does falls on both sides.
"""

import tempfile
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from statistics import median

from bench.bench_middleware import Side, check_programs, in_turns, listening, serving
from bench.browser_load import write_script
from bench.measure import Row
from bench.middleware_app import WSGI_THREADS

TARGET = 1.05
"""The issue's: the processor time for each request, with the limit and without it."""


def run(rounds: int) -> list[Row]:
    """Measure each application, bare and limited in turns."""
    check_programs()
    with tempfile.TemporaryDirectory() as folder:
        script = write_script(Path(folder) / "load.lua")
        rows = []
        for what, bare, limited in (
            ("Starlette app", "starlette", "in_flight_starlette"),
            ("raw ASGI app", "raw", "in_flight_raw"),
            ("WSGI app on waitress", "wsgi", "in_flight_wsgi"),
        ):
            with ExitStack() as stack:
                serve = waitress if "WSGI" in what else serving
                sides = stack.enter_context(serve(bare)), stack.enter_context(serve(limited))
                in_turns(sides, script, rounds)
                rows.append(row(f"{what} with a concurrency limit, CPU per request", *sides))
        return rows


def waitress(app: str) -> AbstractContextManager[Side]:
    """Serve a WSGI application of `bench.middleware_app`, which is made by a call if it is limited."""
    call = ["--call"] if app.startswith("in_flight") else []
    threads = ["--threads", str(WSGI_THREADS), "--host", "127.0.0.1"]
    return listening(["waitress", *threads, *call, f"bench.middleware_app:{app}"])


def row(what: str, bare: Side, limited: Side) -> Row:
    """Put the median of the pairs' ratios into a row."""
    ours, theirs = (median(each.microseconds for each in side.loads) for side in (limited, bare))
    pairs = zip(limited.loads, bare.loads, strict=True)
    ratio = median(mine.microseconds / other.microseconds for mine, other in pairs)
    return Row(what, "the bare app", ratio, "≤", TARGET, f"{ours:.1f} µs against {theirs:.1f} µs")
