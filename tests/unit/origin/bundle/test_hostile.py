"""A server of any bundle sends valid HTTP messages."""

import h11
import pytest

from headgate.errors import BundleError
from headgate.http.h1 import RequestLimits, parse_request_head
from headgate.origin.bundle.server import BundleServer, Lifeboat
from headgate.origin.bundle.snapshot import ReloadingBundle
from headgate.origin.gateway.responses import serialize
from tests.malformed import QUARTERS, named


def targets(publication):
    """Yield a host and a request target for every URL in the bundle."""
    for url in publication.snapshot.metadata.requests:
        host, _, path = url.partition("://")[2].partition("/")
        yield host.encode("ascii") or b"a", b"/" + path.encode("ascii")


def read_whole(response, method):
    """Read a response with h11, which raises for an invalid message."""
    body = response.source.read() if response.source is not None else b""
    agent = h11.Connection(h11.CLIENT)
    agent.send(h11.Request(method=method, target="/", headers=[("Host", "a")]))
    agent.send(h11.EndOfMessage())
    agent.receive_data(serialize(response, keep=True, without_body=method == "HEAD") + body)
    events = []
    while (event := agent.next_event()) is not h11.PAUSED and event is not h11.NEED_DATA:
        events.append(event)
        if isinstance(event, h11.EndOfMessage):
            break
    assert isinstance(events[-1], h11.EndOfMessage)
    assert agent.trailing_data == (b"", False)


@pytest.mark.parametrize("part", QUARTERS)
def test_responses_from_each_case_are_valid_messages(tmp_path, part):
    path = tmp_path / "site.wbn"
    for case in QUARTERS[part]:
        path.write_bytes(case.content)
        for profile in ("strict", "compat"):
            with named(f"{case.name} ({profile})"):
                check_responses(path, profile)


def check_responses(path, profile):
    try:
        publication = ReloadingBundle(path, profile=profile)
    except BundleError:
        return
    front, boat = BundleServer(publication, unpack=True), Lifeboat(publication, ["*"])
    for host, target in [*targets(publication), (b"a", b"/site.wbn"), (b"a", b"/none")]:
        for method in ("GET", "HEAD"):
            read_whole(front.answer(method.encode(), host, target, []), method)
            line = b"%b %b HTTP/1.1\r\nHost: %b\r\n\r\n" % (method.encode(), target, host)
            rescued = boat.rescue(parse_request_head(line, RequestLimits()), [])
            if rescued is not None:
                read_whole(rescued, method)
