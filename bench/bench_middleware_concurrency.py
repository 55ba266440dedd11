"""An application with a concurrency limit in the middleware against the same application bare, in processor time.

The goal is that of small applications, as people write them: one route that answers JSON, with Starlette served by
uvicorn on uvloop and httptools, and with Flask served by waitress. Beside each is the worst case: an application that
does nothing but answer, which makes the limit's share as large as it can be. The limit is fixed or learned, and never
so low that a request waits: what is measured is what every request costs. The load is that of `bench.bench_middleware`,
in short turns, so that whatever else the machine does falls on all sides. Before it, both sides must answer the same.
"""

import tempfile
import urllib.request
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from bench.bench_middleware import Side, check_programs, in_turns, listening, serving
from bench.browser_load import write_script
from bench.measure import Row, verify
from bench.middleware_app import LIMIT, WSGI_THREADS

TARGET = 1.05
"""The processor time for each request with the limit, in times of that without it."""
WORST_CASE = 1.1
APPLICATIONS = {
    "Starlette app, JSON": ("starlette_json", TARGET),
    "Flask app, JSON": ("flask_json", TARGET),
    "raw ASGI app": ("raw", WORST_CASE),
    "raw WSGI app": ("wsgi", WORST_CASE),
}
"""The applications of `bench.middleware_app`, and their bounds."""
PATH = "/shop/item/7/details"


def run(rounds: int) -> list[Row]:
    """Measure each application bare, with a fixed limit and with a learned one, in turns."""
    check_programs()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        script = write_script(Path(folder) / "load.lua")
        for what, (app, target) in APPLICATIONS.items():
            serve = waitress if app in ("wsgi", "flask_json") else serving
            with ExitStack() as stack:
                bare = stack.enter_context(serve(app))
                limited = {
                    kind: stack.enter_context(serve(f"in_flight_{app}", **{LIMIT: kind}))
                    for kind in ("fixed", "learned")
                }
                bodies = {get(side) for side in (bare, *limited.values())}
                verify(f"all sides answer the same: {bodies}", right=len(bodies) == 1)
                in_turns((bare, *limited.values()), script, rounds)
                for kind, side in limited.items():
                    rows.append(row(f"{what}, with a {kind} limit, CPU per request", bare, side, target))
    return rows


def get(side: Side) -> bytes:
    """Return what an application answers."""
    with urllib.request.urlopen(f"http://127.0.0.1:{side.port}{PATH}", timeout=10) as response:
        return bytes(response.read())


def waitress(app: str, **environment: str) -> AbstractContextManager[Side]:
    """Serve a WSGI application of `bench.middleware_app`."""
    flags = ["--threads", str(WSGI_THREADS), "--host", "127.0.0.1", "--call"]
    return listening(["waitress", *flags, f"bench.middleware_app:{app}"], **environment)


def row(what: str, bare: Side, limited: Side, target: float) -> Row:
    """Put the ratio of the least figures of both sides into a row: what else the machine does only adds to them."""
    ours, theirs = (min(each.microseconds for each in side.loads) for side in (limited, bare))
    return Row(what, "the bare app", ours / theirs, "≤", target, f"{ours:.1f} µs against {theirs:.1f} µs")
