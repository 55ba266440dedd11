"""An application with a concurrency limit in the middleware against the same application bare, in processor time.

Three applications: Starlette with one route, and one written against ASGI itself, which makes the limit's share as
large as it can be, both served by uvicorn on uvloop and httptools; and a WSGI application served by waitress. The limit
is fixed or learned, and never so low that a request waits: what is measured is what every request costs. The load is
that of `bench.bench_middleware`, in short turns, so that whatever else the machine does falls on all sides.
"""

import tempfile
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from bench.bench_middleware import Side, check_programs, in_turns, listening, serving
from bench.browser_load import write_script
from bench.measure import Row
from bench.middleware_app import LIMIT, WSGI_THREADS

TARGET = 1.05
"""The processor time for each request with the limit, in times of that without it."""
APPLICATIONS = {"Starlette app": "starlette", "raw ASGI app": "raw", "WSGI app on waitress": "wsgi"}


def run(rounds: int) -> list[Row]:
    """Measure each application bare, with a fixed limit and with a learned one, in turns."""
    check_programs()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        script = write_script(Path(folder) / "load.lua")
        for what, app in APPLICATIONS.items():
            serve = waitress if app == "wsgi" else serving
            with ExitStack() as stack:
                bare = stack.enter_context(serve(app))
                limited = {
                    kind: stack.enter_context(serve(f"in_flight_{app}", **{LIMIT: kind}))
                    for kind in ("fixed", "learned")
                }
                in_turns((bare, *limited.values()), script, rounds)
                rows += [row(f"{what} with a {kind} limit, CPU per request", bare, limited[kind]) for kind in limited]
    return rows


def waitress(app: str, **environment: str) -> AbstractContextManager[Side]:
    """Serve a WSGI application of `bench.middleware_app`, which is made by a call if it is limited."""
    call = ["--call"] if app.startswith("in_flight") else []
    threads = ["--threads", str(WSGI_THREADS), "--host", "127.0.0.1"]
    return listening(["waitress", *threads, *call, f"bench.middleware_app:{app}"], **environment)


def row(what: str, bare: Side, limited: Side) -> Row:
    """Put the ratio of the least figures of both sides into a row: what else the machine does only adds to them."""
    ours, theirs = (min(each.microseconds for each in side.loads) for side in (limited, bare))
    return Row(what, "the bare app", ours / theirs, "≤", TARGET, f"{ours:.1f} µs against {theirs:.1f} µs")
