from headgate.config import Address
from headgate.config.file import parse
from headgate.runtime.demo.plan import Plan
from headgate.runtime.demo.site import gate_configuration
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
