"""Gates that share a real store, in one process: they admit what one gate admits, and faults cost little.

The time of requests is a number that the tests advance; only the store's own timeouts are real.
"""

import asyncio
import random
from contextlib import ExitStack, asynccontextmanager

import pytest

from headgate.config.store_url import StoreUrl
from headgate.limit import DelayUntil, Domain, Gatekeeper, Rule
from headgate.limit.gatekeeper import longest_hold, spacing
from headgate.release import Status
from headgate.store import RedisStore, SharedMaster
from headgate.store.master import SharedDomain
from tests import servers

pytestmark = pytest.mark.needs("redis-server")

NOW = 1_700_000_000.0
PATIENCE = 20.0  # seconds; only ever reached by a failing test
MAX_DELAY = 2.0
STORE_PAGE = servers.ROOT / "docs" / "reference" / "store.md"


class Gates:
    """Gatekeepers with embedded masters, each with a store of its own; all obey what any store has learned."""

    def __init__(self, url, domain, number):
        self.domain, self.now, self.lines = domain, NOW, []
        self.stores, self.gatekeepers = [], []
        for _ in range(number):
            store = RedisStore(StoreUrl.parse(url), log=self.lines.append, clock=lambda: self.now, draw=lambda: 0.0)
            master = SharedMaster([domain], store.add, max_identifiers=1_000, max_delay=MAX_DELAY)
            gatekeeper = Gatekeeper(
                master=master,
                max_delay=MAX_DELAY,
                spacing=spacing([domain]),
                max_hold=longest_hold([domain], MAX_DELAY),
            )
            store.attach(master, self.publish)
            self.stores.append(store)
            self.gatekeepers.append(gatekeeper)
            store.start()

    def publish(self, control):
        for gatekeeper in self.gatekeepers:
            gatekeeper.obey(control)

    async def admit(self, which, identifier=b"alice"):
        """Decide on a request at one gate, and wait until its record is shared or dropped."""
        verdict = self.gatekeepers[which].admit(self.domain.name, identifier, now=self.now)
        release = self.gatekeepers[which].held(self.domain.name, identifier, now=self.now)
        for gatekeeper in self.gatekeepers:  # what an ordinary master would publish
            if release > self.now:
                gatekeeper.obey(DelayUntil(self.domain.name, identifier, release))
        await self.settled(which)
        return verdict

    def key(self, identifier):
        return SharedDomain(self.domain, 1.0).key(identifier)

    async def settled(self, which):
        counters, totals = self.stores[which].counters, self.gatekeepers[which].totals[self.domain.name]
        await self.until(
            lambda: (
                totals.accepted + totals.delayed
                == counters.records["shared"] + counters.records["unshared"] + counters.records["lost"]
            )
        )

    async def until(self, done):
        async with asyncio.timeout(PATIENCE):
            while not done():  # noqa: ASYNC110  # what it waits for has no event
                await asyncio.sleep(0.001)

    async def all(self, state):
        await self.until(lambda: all(store.state == state for store in self.stores))

    async def close(self):
        for store in self.stores:
            await store.close()


@asynccontextmanager
async def gates(url, rule, number=2, algorithm="log"):
    shared = Gates(url, Domain("api", (Rule.parse(rule),), algorithm), number)
    try:
        yield shared
    finally:
        await shared.close()


def url(server):
    return f"redis://127.0.0.1:{server.port}"


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "redis"
    path.mkdir()
    return path


@pytest.mark.parametrize("algorithm", ["log", "gcra"])
async def test_gates_that_share_a_store_admit_what_one_gate_admits(folder, algorithm):
    with servers.redis(folder) as server:
        draw = random.Random(algorithm)
        async with gates(url(server), "10/min burst 4", 3, algorithm) as shared:
            await shared.all("up")
            alone = Gatekeeper.embedded([shared.domain], max_delay=MAX_DELAY)
            statuses = set()
            for _ in range(150):
                shared.now += draw.choice([0.0, 0.5, 1.0, 3.0, 7.0])
                verdict = await shared.admit(draw.randrange(3))
                expected = alone.admit("api", b"alice", now=shared.now)
                assert (verdict.status, verdict.release) == (expected.status, expected.release)
                statuses.add(verdict.status)
            assert statuses == set(Status)


async def spend(shared, requests, identifier=b"alice"):
    """Send requests to the gates in turns at one instant; return the number admitted."""
    verdicts = [await shared.admit(index % len(shared.stores), identifier) for index in range(requests)]
    return sum(verdict.status is not Status.REJECTED for verdict in verdicts)


async def test_store_that_is_killed_and_comes_back_empty_gets_the_live_holds(folder):
    import redis

    port = servers.free_port()
    async with gates(f"redis://127.0.0.1:{port}", "10/h burst 10") as shared:
        with servers.redis(folder, port=port) as server:
            await shared.all("up")
            assert await spend(shared, 12) == 10
            assert await spend(shared, 6, b"bob") == 6
            server.process.kill()
            server.process.wait()
            await shared.all("down")
            # Each gate has its own half of the requests, so it admits the other half again, and no more.
            assert await spend(shared, 20, b"bob") <= 14
            assert await spend(shared, 5) == 0
        with servers.redis(folder, port=port), redis.Redis(port=port) as client:
            await shared.all("up")
            key = shared.key(b"alice")
            await shared.until(lambda: client.exists(key))
            assert client.strlen(key) == 24  # the hold, without a history
            assert 360 <= client.ttl(key) <= 420
            assert await spend(shared, 12, b"carol") == 10
            assert all(one.startswith(b"headgate:{") for one in client.scan_iter())
        assert [line.partition(": ")[2] for line in shared.lines].count("connected") == 4


async def test_cluster_without_one_of_its_nodes_shares_the_rest(folder):
    from redis.crc import key_slot

    with servers.redis_cluster(folder) as nodes:
        async with gates(f"redis+cluster://127.0.0.1:{nodes[2].port}", "10/h burst 10") as shared:

            def is_lost(identifier):
                return servers.SLOTS // 3 <= key_slot(shared.key(identifier)) < 2 * servers.SLOTS // 3

            await shared.all("up")
            identifiers = [b"client-%d" % number for number in range(6)]
            assert {is_lost(identifier) for identifier in identifiers} == {True, False}
            for identifier in identifiers:
                assert await spend(shared, 12, identifier) == 10
            nodes[1].process.kill()
            await shared.all("partial")
            await shared.until(lambda: all(len(store._unusable) > 1 for store in shared.stores))
            for identifier in identifiers:
                assert await spend(shared, 2, identifier) == 0
                # Ten at one gate, and nine at the other, which obeys the same hold.
                assert await spend(shared, 30, b"new-" + identifier) == (19 if is_lost(b"new-" + identifier) else 10)
            assert len(shared.lines) == 4  # each store is connected, then lacks a server


@pytest.mark.deep
async def test_slots_that_move_to_another_node_lose_no_record(folder):
    """MOVED once all keys of a slot have moved, ASK and TRYAGAIN in between: the client follows them."""
    import redis
    from redis.crc import key_slot

    with servers.redis_cluster(folder) as nodes, ExitStack() as stack:
        clients = [stack.enter_context(redis.Redis(port=node.port)) for node in nodes]
        async with gates(f"redis+cluster://127.0.0.1:{nodes[0].port}", "10/h burst 10") as shared:
            await shared.all("up")
            slot = key_slot(shared.key(b"alice"))
            source = clients[slot // (servers.SLOTS // 3 + 1)]
            target = next(client for client in clients if client is not source)
            ids = {client: client.execute_command("CLUSTER", "MYID") for client in clients}
            assert await spend(shared, 4) == 4
            target.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
            source.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
            port = target.connection_pool.connection_kwargs["port"]
            source.execute_command("MIGRATE", "127.0.0.1", port, shared.key(b"alice"), 0, 5_000)
            assert await spend(shared, 3) == 3
            for client in clients:
                client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[target])
            assert await spend(shared, 12) == 3
            assert {
                (store.counters.records["lost"], store.counters.records["unshared"]) for store in shared.stores
            } == {(0, 0)}


async def test_replica_that_sentinel_promotes_is_used(folder):
    import redis

    with servers.redis_sentinel(folder) as (sentinel, (primary, replica)):
        async with gates(f"redis+sentinel://127.0.0.1:{sentinel.port}/main", "10/h burst 10") as shared:
            await shared.all("up")
            assert await spend(shared, 6) == 6
            with redis.Redis(port=primary.port) as client:
                key = shared.key(b"alice")
                size = client.strlen(key)
            with redis.Redis(port=replica.port) as client:
                await shared.until(lambda: client.strlen(key) == size)
            primary.process.kill()
            for which in range(2):  # before the replica is promoted
                await shared.admit(which, b"bob")
            await shared.until(lambda: sum("going on in memory" in line for line in shared.lines) == 2)
            await shared.all("up")
            assert await spend(shared, 12) == 4
            assert [line.partition(": ")[2] for line in shared.lines].count("connected") == 4


PERMISSIONS = """~headgate:* -@all +evalsha +script|load +get +set +getrange +setrange +append +strlen +pexpire +ping
    +command +cluster|slots +cluster|info"""


@pytest.mark.parametrize("kind", ["server", "cluster"])
async def test_documented_permissions_suffice(folder, kind):
    import redis

    assert f"ACL SETUSER headgate on >PASSWORD {' '.join(PERMISSIONS.split())}" in STORE_PAGE.read_text()

    with ExitStack() as stack:
        if kind == "cluster":
            nodes = stack.enter_context(servers.redis_cluster(folder))
        else:
            nodes = [stack.enter_context(servers.redis(folder))]
        for node in nodes:
            with redis.Redis(port=node.port) as client:
                client.execute_command("ACL", "SETUSER", "headgate", "on", ">pw", *PERMISSIONS.split())
        scheme = "redis+cluster" if kind == "cluster" else "redis"
        async with gates(f"{scheme}://headgate:pw@127.0.0.1:{nodes[0].port}", "10/h burst 300") as shared:
            await shared.all("up")
            assert await spend(shared, 302) == 300
            assert sum(store.counters.failures for store in shared.stores) == 0


async def test_tls(folder):
    import trustme

    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    certificate = authority.issue_cert("localhost")
    certificate.private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")

    port = servers.free_port()
    files = ["--tls-cert-file", "server.pem", "--tls-key-file", "server.pem", "--tls-ca-cert-file", "ca.pem"]
    options = ["--port", "0", "--tls-port", str(port), "--tls-auth-clients", "no", *files]
    with servers.redis(folder, *options, port=port):
        address = f"rediss://localhost:{port}"
        async with gates(f"{address}?ssl_ca_certs={folder / 'ca.pem'}", "10/h burst 10") as shared:
            await shared.all("up")
            assert await spend(shared, 12) == 10
        async with gates(address, "10/h burst 10") as shared:
            await shared.all("down")
            assert "certificate" in shared.lines[0]
        # The server's name is checked, not only its authority.
        address = address.replace("localhost", "127.0.0.1")
        async with gates(f"{address}?ssl_ca_certs={folder / 'ca.pem'}", "10/h burst 10") as shared:
            await shared.all("down")
            assert "certificate is not valid for '127.0.0.1'" in shared.lines[0]


async def test_a_store_that_refuses_is_reported_and_each_gate_goes_on_alone(folder):
    with servers.redis(folder, "--requirepass", "s?cret") as server:
        port = server.port
        async with gates(f"redis://default:s%3Fcret@127.0.0.1:{port}/3", "10/h burst 10") as shared:
            await shared.all("up")
            assert await spend(shared, 12) == 10
        async with gates(f"redis://:other@127.0.0.1:{port}", "10/h burst 10") as shared:
            await shared.all("down")
            assert "password" in shared.lines[0]
            assert ":other" not in "".join(shared.lines)
            assert await spend(shared, 30) == 19  # 10 at one gate, and 9 at the other, which obeys the same hold
