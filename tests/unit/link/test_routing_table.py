import pytest

from headgate.errors import WireError
from headgate.limit.sharding import Sharding, sharding_item
from headgate.link.batch import BATCH
from headgate.link.routing_table import _MAX_DOMAINS, _MAX_ITEMS, MasterTraffic, RoutedMaster, RoutingTable
from headgate.link.subscriptions import Subscriptions

ALL, BATCHES = b"\1", b"\1" + BATCH
NAMES = ["tcp://a:1", "tcp://b:1", "tcp://c:1"]


class Connection:
    """A connection of which a routing table uses the subscriptions only."""

    def __init__(self, *messages):
        self.is_up = True
        self.subscriptions = Subscriptions((), "auto")
        self.receive(*messages)

    def receive(self, *messages):
        for message in messages:
            self.subscriptions.update(message)


class Setup:
    def __init__(self, shard="domain", count=3):
        self.masters = {name: RoutedMaster(Connection(ALL, BATCHES), MasterTraffic()) for name in NAMES[:count]}
        self.table = RoutingTable(self.masters, shard)

    def lose(self, name):
        self.masters[name].connection.receive(b"\0", b"\0" + BATCH)
        self.table.update()

    def owner(self, topic, identifier=b""):
        route = self.table.route(topic, identifier)
        return None if route is None else next(name for name, one in self.masters.items() if one is route.master)


def expected(topics, live=NAMES):
    return [Sharding(NAMES).owner(topic, live) for topic in topics]


TOPICS = [sharding_item(f"domain-{number}") for number in range(20)]


def test_a_domain_has_the_owner_of_the_sharding():
    setup = Setup()
    assert [setup.owner(topic, b"any") for topic in TOPICS] == expected(TOPICS)
    assert [setup.owner(topic, b"other") for topic in TOPICS] == expected(TOPICS)


def test_an_identifier_has_the_owner_of_the_sharding():
    setup = Setup("identifier")
    identifiers = [b"%d" % number for number in range(20)]
    items = [sharding_item("api", identifier) for identifier in identifiers]
    assert [setup.owner(b"api\0", identifier) for identifier in identifiers] == expected(items)
    routes = {id(setup.table.route(b"api\0", identifier)) for identifier in identifiers}
    assert len(routes) == 3  # one for each master


def test_a_lost_master_owns_nothing_until_it_is_back():
    setup = Setup()
    before = [setup.owner(topic) for topic in TOPICS]
    setup.lose("tcp://b:1")
    assert [setup.owner(topic) for topic in TOPICS] == expected(TOPICS, ["tcp://a:1", "tcp://c:1"])
    setup.masters["tcp://b:1"].connection.receive(ALL, BATCHES)
    setup.table.update()
    assert [setup.owner(topic) for topic in TOPICS] == before


def test_a_master_whose_controls_do_not_arrive_owns_nothing_unless_all_are_such():
    setup = Setup()
    setup.masters["tcp://b:1"].connection.is_up = False
    setup.table.update()
    assert [setup.owner(topic) for topic in TOPICS] == expected(TOPICS, ["tcp://a:1", "tcp://c:1"])
    for master in setup.masters.values():
        master.connection.is_up = False
    setup.table.update()
    assert [setup.owner(topic) for topic in TOPICS] == expected(TOPICS)


def test_without_a_master_there_is_no_route():
    setup = Setup(count=1)
    setup.lose(NAMES[0])
    assert setup.owner(b"api\0") is None
    assert dict(setup.table.owners()) == {"api": ""}


def test_a_route_has_the_encoding_that_the_master_reads():
    setup = Setup(count=1)
    assert setup.table.route(b"api\0").encoding == "batch"
    setup.masters[NAMES[0]].connection.receive(b"\0" + BATCH)
    setup.table.update()
    route = setup.table.route(b"api\0")
    assert (route.encoding, route.topic, route.batch_topic) == ("frames", b"api\0", BATCH + b"api\0")


@pytest.mark.parametrize("topic", [b"", b"\0", b"api", b"a\0b\0", b"api\0\0", b"x" * 255 + b"\0"])
def test_an_invalid_topic_is_an_error(topic):
    with pytest.raises(WireError, match=r"topic|NUL"):
        Setup().table.route(topic)


def test_the_owners_are_those_of_the_domains_that_were_seen():
    setup = Setup()
    for topic in TOPICS:
        setup.table.route(topic)
    assert [owner for _, owner in setup.table.owners()] == expected(TOPICS)
    by_identifier = Setup("identifier")
    by_identifier.table.route(b"api\0", b"id")
    assert list(by_identifier.table.owners()) == [("api", "")]


def test_domains_and_identifiers_are_bounded():
    setup = Setup("identifier", count=1)
    for number in range(_MAX_DOMAINS + 10):
        setup.table.route(b"%d\0" % number, b"id")
    names = [name for name, _ in setup.table.owners()]
    assert names == [str(number) for number in range(10, _MAX_DOMAINS + 10)]
    for number in range(_MAX_ITEMS + 10):
        assert setup.table.route(b"api\0", b"%d" % number) is not None
    assert len(setup.table._routes) <= _MAX_ITEMS
