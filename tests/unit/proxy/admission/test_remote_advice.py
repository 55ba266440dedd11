"""Queries of workers and replies of the supervisor, without the channel between them."""

import asyncio
from ipaddress import ip_address

import msgspec
import pytest

from headgate.advice.decision import Advice
from headgate.advice.parser import UNREACHABLE, AdviceEntry
from headgate.proxy.admission.authority import parse_authority
from headgate.proxy.admission.remote_advice import AdviceQuery, AdviceReply, RemoteAdvice, answer_query
from headgate.proxy.refusal import Refusal
from headgate.proxy.sockets import Endpoint

NOW = 1_000_000.0
PATIENCE = 20.0  # seconds; only ever reached by a failing test
HERE = Endpoint(ip_address("127.0.0.1"), 8443)
THERE = Endpoint(ip_address("2001:db8::1"), 443)


def advice(result=AdviceEntry(fraction=0.5), *, origin="https://www.example.org", fresh_for=600.0):  # noqa: B008
    return Advice(origin, result, "because", NOW + fresh_for)


class Parent:
    """Advises with whatever it is told to, and takes a message over the wire each way."""

    def __init__(self, *answers, **options):
        self.answers = list(answers)
        self.asked = []
        self.hold = asyncio.Event()
        self.hold.set()
        self.now = NOW
        self.tasks = []
        self.worker = RemoteAdvice(self.send, clock=lambda: self.now, **options)

    def send(self, want):
        self.tasks.append(asyncio.ensure_future(self.answer(over_the_wire(want))))

    async def answer(self, want):
        self.worker.receive(over_the_wire(await answer_query(want, self)))

    def known(self, origin, *, now):
        raise AssertionError("workers know for themselves")

    async def advice(self, authority, endpoints):
        self.asked.append((authority, list(endpoints)))
        await self.hold.wait()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def ask(self, text="www.example.org:443", endpoints=(HERE, THERE)):
        return await self.worker.advice(parse_authority(text), endpoints)


def over_the_wire(message):
    return msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=AdviceQuery | AdviceReply)


def run(check, *answers, **options):
    async def main():
        parent = Parent(*answers, **options)
        await check(parent)
        await asyncio.gather(*parent.tasks)

    asyncio.run(main())


@pytest.mark.parametrize("result", [AdviceEntry(disallowed=True), AdviceEntry(fraction=0.5), None, UNREACHABLE])
def test_a_reply_is_cached(result):
    async def check(parent):
        assert await parent.ask() == (advice(result), None)
        assert parent.asked == [(parse_authority("www.example.org:443"), [HERE, THERE])]
        assert parent.worker.known("https://www.example.org", now=NOW + 599) == advice(result)
        assert await parent.ask() == (advice(result), None)
        assert len(parent.asked) == 1

    run(check, (advice(result), None))


def test_stale_advice_is_queried_again():
    async def check(parent):
        await parent.ask()
        parent.now += 600
        assert parent.worker.known("https://www.example.org", now=parent.now) is None
        assert await parent.ask() == (advice(None, fresh_for=1200.0), None)
        parent.now = NOW - 200_000  # the clock was set back
        assert parent.worker.known("https://www.example.org", now=parent.now) is None

    run(check, (advice(), None), (advice(None, fresh_for=1200.0), None))


def test_concurrent_requests_share_a_query():
    async def check(parent):
        parent.hold.clear()
        asking = [asyncio.ensure_future(parent.ask()) for _ in range(10)]
        await asyncio.sleep(0)
        asking[0].cancel()
        await asyncio.sleep(0)
        parent.hold.set()
        assert await asyncio.gather(*asking[1:]) == [(advice(), None)] * 9
        assert len(parent.asked) == 1

    run(check, (advice(), None))


@pytest.mark.parametrize(
    "unreachable_reason",
    [
        Refusal("dial_refused", "127.0.0.1:8443: Connection refused"),
        Refusal("dial_timeout", "it did not answer"),
        Refusal("dial_refused", "no route", error_type="destination_ip_unroutable"),
    ],
)
def test_the_reason_why_an_origin_is_unreachable_is_passed_on(unreachable_reason):
    async def check(parent):
        told, refusal = await parent.ask()
        assert told.result is UNREACHABLE
        assert (refusal.reason, refusal.detail, refusal.rule) == (
            unreachable_reason.reason,
            unreachable_reason.detail,
            unreachable_reason.rule,
        )
        assert refusal.fields == unreachable_reason.fields
        assert (await parent.ask())[1] is None
        assert len(parent.asked) == 1

    run(check, (advice(UNREACHABLE), unreachable_reason))


def test_a_local_failure_is_not_cached():
    async def check(parent):
        with pytest.raises(Refusal, match="no sockets") as caught:
            await parent.ask()
        assert caught.value.reason == "connections"
        assert await parent.ask() == (advice(), None)

    run(check, Refusal("connections", "no sockets"), (advice(), None))


def test_queries_fail_when_the_supervisor_has_ended():
    async def check(parent):
        parent.hold.clear()
        asking = asyncio.ensure_future(parent.ask())
        await asyncio.sleep(0)
        parent.worker.close()
        with pytest.raises(Refusal) as caught:
            await asking
        assert caught.value.reason == "connections"
        with pytest.raises(Refusal):
            await parent.ask("www.example.net:443")
        for task in parent.tasks:
            task.cancel()
        await asyncio.gather(*parent.tasks, return_exceptions=True)
        parent.tasks = []

    run(check, (advice(), None))


def test_an_unexpected_error_of_the_supervisor_is_answered():
    async def check(parent):
        with pytest.raises(Refusal) as caught:
            await asyncio.wait_for(parent.ask(), PATIENCE)
        assert (caught.value.reason, caught.value.retry_after) == ("internal", 5)
        assert await parent.ask() == (advice(), None)

    run(check, LookupError("a defect"), (advice(), None))


def test_a_query_times_out():
    async def check(parent):
        parent.hold.clear()
        asking = [asyncio.ensure_future(parent.ask()) for _ in range(2)]
        for waiting in asking:
            with pytest.raises(Refusal) as caught:
                await asyncio.wait_for(waiting, PATIENCE)
            assert caught.value.reason == "internal"
        assert len(parent.asked) == 1
        assert parent.worker.pending_fetch("https://www.example.org") is None
        parent.hold.set()
        await asyncio.gather(*parent.tasks)  # the late answer is ignored
        parent.worker = RemoteAdvice(parent.send, clock=lambda: parent.now)
        assert await parent.ask() == (advice(), None)

    run(check, (advice(), None), (advice(), None), timeout=0.0)


def test_the_least_recently_used_origin_is_evicted():
    async def check(parent):
        for number in range(10_000):
            await parent.ask(f"a{number}.example.org:443")
        parent.worker.known("https://a0.example.org", now=NOW)
        await parent.ask("one-more.example.org:443")
        assert parent.worker.known("https://a0.example.org", now=NOW) is not None
        assert parent.worker.known("https://a1.example.org", now=NOW) is None
        assert parent.worker.known("https://a2.example.org", now=NOW) is not None

    answers = [(advice(origin=f"https://a{number}.example.org"), None) for number in range(10_001)]
    run(check, *answers)
