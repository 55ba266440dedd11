"""A master behind a router, or without one: ``python -m bench.routed_master COUNT``.

It prints the port that it listens on, reads COUNT records of any of the domains, and prints one line of JSON: when the
first and the last of them were read (the clock is that of the machine), the seconds that it computed meanwhile, and its
totals.
"""

import json
import sys
import time

from msgspec.structs import asdict

from bench.bus_load import DOMAIN, NOW
from headgate.limit import Domain, Master
from headgate.limit.sharding import Sharding, sharding_item
from headgate.link import MasterLink

DOMAINS = [f"domain-{number}" for number in range(200)]


def owned_domain(owner: str, masters: list[str]) -> str:
    """Give one of the domains that belongs to `owner` when all masters are connected."""
    sharding = Sharding(masters)
    return next(name for name in DOMAINS if sharding.owner(sharding_item(name), masters) == owner)


def main(records: int) -> None:
    """Serve until all has been read."""
    master = Master(Domain(name, DOMAIN.rules) for name in DOMAINS)
    link = MasterLink(master, "tcp://127.0.0.1:0", clock=lambda: NOW)
    print(link.endpoints.accounting.rpartition(":")[2], flush=True)
    counters = link.counters
    link.run(until=lambda: counters.accounted > 0)
    first, computed = time.monotonic(), time.process_time()
    link.run(until=lambda: counters.accounted >= records)
    figures = {"first": first, "last": time.monotonic(), "computed": time.process_time() - computed}
    totals = {name: asdict(one) for name, one in master.totals.items() if one.accepted}
    print(json.dumps({**figures, "totals": totals, "controls": counters.controls}), flush=True)
    link.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
