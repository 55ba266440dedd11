import asyncio
from types import SimpleNamespace

import pytest

from headgate.config import Address
from headgate.config.file import parse
from headgate.errors import DemoError
from headgate.runtime.demo import site
from headgate.runtime.demo.load import LoadState
from headgate.runtime.demo.origin import OriginConfiguration
from headgate.runtime.demo.plan import CALM, PHASES, Plan
from headgate.runtime.demo.site import Site, gate_configuration
from headgate.runtime.gate.build import compose, require_gate

PLAN = Plan(20.0)


def test_the_configuration_of_the_gate_is_valid():
    text = gate_configuration(PLAN, origin=Address("127.0.0.1", 8000), certificate="/a b/c.pem", key='/a"b.pem')
    tree = parse(text)
    require_gate(tree)
    compose(tree)
    assert tree.gate.origin == "http://127.0.0.1:8000"
    assert (tree.gate.tls.cert, tree.gate.tls.key) == ("/a b/c.pem", '/a"b.pem')
    assert (tree.gate.listen, tree.gate.admin) == ("127.0.0.1:0", "127.0.0.1:0")
    assert tree.limit.concurrency.max == PLAN.max_in_flight >= PLAN.workers
    priorities = {section.name: section.priority for section in tree.domain}
    assert priorities == {"prefetch": "prefetch", "agents": "verified", "crawlers": "automated", "people": "people"}


class BusyClients:
    """A process of clients that never takes its new configuration."""

    def configure(self, configuration):
        pass

    async def state(self):
        return LoadState()


def test_clients_that_are_too_slow_are_an_error_with_a_reason(monkeypatch):
    monkeypatch.setattr(site, "_CONFIGURE_TIMEOUT", 0.05)
    here = Address("127.0.0.1", 1)
    children = SimpleNamespace(check=lambda: None)
    origin = OriginConfiguration(here, here, "cert.pem", "key.pem", PLAN.workers, PLAN.service_time)
    made = Site(PLAN, children, SimpleNamespace(port=1), origin)
    made._loads = {kind: BusyClients() for kind, _ in PLAN.clients}
    with pytest.raises(DemoError, match="the clients did not change their load within"):
        asyncio.run(made.direct(CALM, PHASES[0]))
