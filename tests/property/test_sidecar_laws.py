"""A sidecar tells its data plane every hold that is in force, and nothing that is not."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.config.tree import Sidecar
from headgate.limit import DelayUntil, Gatekeeper
from headgate.release import ASAP
from headgate.runtime.sidecar import Composition, SidecarBackend

MAX_HOLD = 50.0
CONTROLS = st.lists(
    st.tuples(
        st.floats(0, 10), st.sampled_from([b"a", b"b", b"c"]), st.one_of(st.floats(-5, 80), st.just(float("inf")))
    )
)
"""Controls: seconds since the one before, the identifier, and seconds until its release."""


class Server:
    """A data plane whose server applies holds with `max`, as all do."""

    def __init__(self):
        self.releases = {}

    async def start(self):
        """Start without a socket."""

    def hold(self, control, *, now):
        assert control.release > now
        self.releases[control.identifier] = max(self.releases.get(control.identifier, ASAP), control.release)


class Link:
    def attach(self, handler):
        self.handler = handler


def run(coroutine):
    """Run a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits")


@given(CONTROLS)
def test_a_server_has_exactly_the_holds_of_the_gatekeeper(controls):
    server, gatekeeper, link = Server(), Gatekeeper(max_hold=MAX_HOLD), Link()
    run(SidecarBackend(Composition(Sidecar(), (), gatekeeper, server), link).start())
    now = 1_000.0
    for pause, identifier, seconds in controls:
        now += pause
        gatekeeper.forget(now=now)
        link.handler.obey(DelayUntil("api", identifier, now + seconds), now=now)
        in_force = {name: release for name, release in server.releases.items() if release > now}
        assert in_force == dict(entry for batch in gatekeeper.holds("api", now=now) for entry in batch)
        assert all(release <= now + MAX_HOLD or release == float("inf") for release in in_force.values())
