"""A real Envoy whose quotas a master serves: holds, identifiers, shares, and the configuration itself."""

import asyncio
import json
import time
from contextlib import asynccontextmanager
from functools import partial

import psutil
import pytest

from headgate.limit.messages import short_identifier
from tests.e2e.bus_setup import Gate, until
from tests.e2e.envoy_setup import DOMAIN, fleet
from tests.e2e.fault_load import GateClient

pytestmark = pytest.mark.needs("envoy", "nginx")

ADMITTED, REJECTED = 200, 429
ONCE = "1/h burst 1"
SLOW = "1/3s burst 3"


def test_requests_pass_without_a_quota_service(tmp_path):
    with fleet(tmp_path, ONCE) as system:
        system.master.kill()
        assert system.envoys[0].statuses(5, "early") == [ADMITTED] * 5


@asynccontextmanager
async def gate_of(system):
    """Run a gatekeeper on the bus of the master, which knows the holds that are published."""
    async with Gate(f"tcp://127.0.0.1:{system.bus}", (DOMAIN,)) as gate:
        await until(lambda: gate.link.has_master)
        yield gate


async def ask(envoy, client="", *more):
    return await asyncio.to_thread(envoy.get, client, *more)


async def until_status(envoy, client, status):
    """Send requests until one has this status; return the number of those before, and the time of the last."""
    deadline = time.monotonic() + 20.0
    number = 0
    while (await ask(envoy, client)).status != status:
        assert time.monotonic() < deadline, f"no {status} after {number} requests"
        number += 1
        await asyncio.sleep(0.02)
    return number, time.time()


def release_of(gate, client):
    return gate.gatekeeper.held(DOMAIN, client.encode(), now=time.time())


async def test_a_rejection_says_why_and_when_to_come_back(tmp_path):
    with fleet(tmp_path, ONCE) as system:
        await until_status(system.envoys[0], "k", REJECTED)
        response = await ask(system.envoys[0], "k")
        assert response.getheader("Content-Type") == "application/problem+json"
        assert response.getheader("Cache-Control") == "no-store"
        assert response.getheader("Retry-After") == "1"
        assert response.getheader("RateLimit") == '"api";r=0'
        problem = json.loads(response.body)
        assert (problem["status"], problem["violated-policies"]) == (REJECTED, [DOMAIN])


async def test_a_hold_that_another_gatekeeper_caused_reaches_envoy_and_ends_on_time(tmp_path):
    with fleet(tmp_path, SLOW) as system:
        (envoy,) = system.envoys
        async with gate_of(system) as gate:
            assert (await ask(envoy, "k")).status == ADMITTED
            await asyncio.sleep(0.1)
            gate.admit(b"=k", 2, DOMAIN)
            await until(lambda: release_of(gate, "=k") > time.time())
            await asyncio.sleep(0.2)
            # This Envoy itself still had two requests of the burst.
            assert (await ask(envoy, "k")).status == REJECTED
            release = release_of(gate, "=k")
            _, ended = await until_status(envoy, "k", ADMITTED)
            # The service lifts the hold; its time to live is in whole seconds. The release is rounded up to 1 ms.
            assert release - 0.001 <= ended < release + 1.0


HOSTILE = ["key", "x" * 255, 'it\'s; a "b" = {c} \\ %d #', "$(id)", "{{", "a:b"]
OTHERS = ["", "a,b", "x" * 256, "é", "\xff\xfe", "\x80"]


async def test_identifiers_are_those_of_a_gate(tmp_path):
    """A header, or the address if the header is missing, repeated, too long, or not ASCII."""

    with fleet(tmp_path, ONCE) as system:
        (envoy,) = system.envoys
        async with gate_of(system) as gate:
            for client in HOSTILE:
                assert (await ask(envoy, client)).status == ADMITTED
                await until(partial(gate.holds, short_identifier(b"=" + client.encode()), DOMAIN))
            assert (await ask(envoy)).status == ADMITTED
            await until(lambda: gate.holds(b"127.0.0.1", DOMAIN))
            await until_status(envoy, "", REJECTED)
            for client in OTHERS:
                assert (await ask(envoy, client)).status == REJECTED, client
            assert (await ask(envoy, "one", ("X-Client", "two"))).status == REJECTED
            assert (await ask(envoy, "one", ("X-Forwarded-For", "192.0.2.1"))).status == ADMITTED


async def test_a_value_that_is_not_utf_8_ends_nothing(tmp_path):
    """With a filter that uses any value: the generated one identifies such a request by its address."""

    with fleet(tmp_path, ONCE, edit=lambda text: text.replace(r"[^,\x80-\xff]{1,255}", ".+")) as system:
        (envoy,) = system.envoys
        async with gate_of(system) as gate:
            for client in "\xff\xfe", "\x80", "\xc3(":
                assert (await ask(envoy, client)).status == ADMITTED
                await until(partial(gate.holds, b"=" + client.encode("latin-1"), DOMAIN))
                assert (await ask(envoy, client)).status == ADMITTED
            # The stream goes on: another identifier is limited at once. A new one would come with the next report.
            passed, _ = await until_status(envoy, "key", REJECTED)
            assert passed <= 20
        assert psutil.Process(system.envoys[0].pid).status() != psutil.STATUS_ZOMBIE


@pytest.mark.deep
async def test_two_envoys_share_a_rule(tmp_path):
    """tests/unit/rlqs/test_shared_rule.py has loads that change, and a master that is killed."""
    seconds, settled = 24, 12
    request = b"GET / HTTP/1.1\r\nHost: shop.example\r\nX-Client: k\r\n\r\n"

    async def load(port, rate, admitted):
        client, began = GateClient(port), time.monotonic()

        async def send(due):
            if await client.send(request) == ADMITTED:
                admitted.append(due)

        async with asyncio.TaskGroup() as requests:
            for number in range(seconds * rate):
                await asyncio.sleep(began + number / rate - time.monotonic())
                requests.create_task(send(number / rate))
        client.close()

    with fleet(tmp_path, "100/s burst 20", envoys=2) as system:
        one, two = [], []
        async with asyncio.TaskGroup() as loads:
            for envoy, rate, admitted in zip(system.envoys, (120, 40), (one, two), strict=True):
                loads.create_task(load(envoy.port, rate, admitted))
        rates = [sum(due >= settled for due in admitted) / (seconds - settled) for admitted in (one, two)]
        assert 88 <= sum(rates) <= 105, rates
        assert rates[1] >= 36
