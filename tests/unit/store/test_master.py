from headgate.limit import Accounting, Domain, Rule
from headgate.release import Status
from headgate.store import SharedMaster


class Sink:
    """Keeps what is shared."""

    def __init__(self):
        self.shared = []

    def add(self, functions, identifier, timestamp, now):
        self.shared.append((identifier, timestamp, now))


def accept(master, identifier, received, now):
    return master.account(Accounting("api", Status.ACCEPTED, identifier, received, received), now)


def test_accounting_that_arrives_after_a_long_stop_is_not_shared():
    """The store would add more to a history than the rule permits."""
    sink = Sink()
    domain = Domain("api", (Rule.parse("1/s burst 5"),), "gcra")
    master = SharedMaster([domain], sink, max_identifiers=1_000, max_delay=5.0)
    accept(master, b"late", 157.0, 160.0)
    accept(master, b"in time", 159.0, 160.0)
    assert sink.shared == [(b"in time", 159.0, 160.0)]
