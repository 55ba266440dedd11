"""The prefetch proxy as a server: log, certificate, advice, admin listener, and one process or several workers.

Several workers share the listening addresses. Their supervisor fetches advice for all of them, and relays no tunnel.
"""

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from heapq import nlargest
from typing import Any, Final

import msgspec
from prometheus_client.core import Metric

from headgate.advice.decision import Advice
from headgate.advice.parser import result_to_json
from headgate.config import Address
from headgate.config.file import field_docs
from headgate.config.proxy_section import Proxy
from headgate.config.section import is_loopback
from headgate.config.tree import restart_note
from headgate.errors import fail_if
from headgate.fetch.fetcher import tls_context
from headgate.observe.feed import MAX_ROWS, Minute, Sample
from headgate.observe.metrics import counter, counter_metrics, gauge, sum_states
from headgate.proxy.admission.advice_service import AdviceService
from headgate.proxy.admission.limits import TunnelSlots, create_slots
from headgate.proxy.admission.remote_advice import AdviceQuery, answer_query
from headgate.proxy.admission.tokens import create_replay_table
from headgate.proxy.counters import ACCEPTED, Counts
from headgate.proxy.log import TrafficSummary
from headgate.proxy.refusal import REFUSALS
from headgate.runtime.admin import admin_url, start_admin
from headgate.runtime.ipc import Configure
from headgate.runtime.lifecycle import Backend, ReadConfiguration, Server, cancel_tasks
from headgate.runtime.listen import reserve_addresses
from headgate.runtime.log import LogCounters, configure_log, log, log_counters, write_line
from headgate.runtime.prefetch_proxy_process import (
    FromWorker,
    ProxyConfiguration,
    ProxyProcess,
    WorkerState,
    check_proxy,
    log_exception,
    self_signed,
)
from headgate.runtime.supervisor import Supervisor, WorkerProcess


class ProxyState(msgspec.Struct, frozen=True):
    """A whole proxy at one instant."""

    counts: Counts
    """The sum of what its processes counted."""
    advice: dict[str, Advice]
    """Fresh advice of the origins in `counts`."""
    now: float
    """Time of reading, seconds since 1970."""
    dropped: int = 0
    """Log lines dropped."""
    draining: bool = False
    """Whether the proxy drains before it stops."""


def state_to_json(state: ProxyState) -> dict[str, Any]:
    """Return what /api/state shows.

    The `result` of an origin is an object with `disallowed` and `fraction`, "unreachable", or null. Null means that the
    origin gives no advice where `fresh_for` (seconds) is more than 0, else that its advice is unknown or expired.
    """
    origins = []
    for origin, counts in state.counts.origins.items():
        known = state.advice.get(origin)
        origins.append(
            {
                "origin": origin,
                "result": None if known is None else result_to_json(known.result),
                "fresh_for": 0.0 if known is None else round(max(0.0, known.fresh_until - state.now), 3),
                "accepted": counts.accepted,
                "refused": counts.refused,
            }
        )
    return {"origins": origins, "tunnels": state.counts.tunnels, "draining": state.draining}


_FETCHES: Final = ("entry", "none", "unreachable")


def proxy_metrics(state: ProxyState) -> Iterator[Metric]:
    """Make the metrics of a proxy; all values of labels exist from the start, and none names an origin."""
    counts, texts = state.counts, field_docs(Counts)
    results = {result: counts.connects.get(result, 0) for result in (ACCEPTED, *REFUSALS)}
    fetches = {result: counts.advice_fetches.get(result, 0) for result in _FETCHES}
    passed = {"received": counts.received, "sent": counts.sent}
    requests = {"connect": counts.connect_request_bytes, "advice": counts.advice_request_bytes}
    yield counter("headgate_proxy_connects", texts["connects"], results, "result")
    yield gauge("headgate_proxy_tunnels", texts["tunnels"], counts.tunnels)
    yield counter("headgate_proxy_bytes", "Bytes through tunnels, as clients see them.", passed, "direction")
    yield counter("headgate_proxy_advice_fetches", texts["advice_fetches"], fetches, "result")
    yield counter("headgate_proxy_request_bytes", "Bytes of CONNECT heads and of advice fetches.", requests, "of")
    yield from counter_metrics({"log_dropped": state.dropped}, [("log", LogCounters)])


_MAX_ORIGINS: Final = 1_000
"""Origins whose counts are kept of workers that have ended."""


class ProxyWorkers(Backend):
    """The workers of a proxy, with the advice that they ask for."""

    module: str = "headgate.runtime.prefetch_proxy_process"
    message_type: Any = FromWorker
    initial_state: WorkerState = WorkerState(Counts())

    def __init__(self, configuration: ProxyConfiguration, advice: AdviceService) -> None:
        settings = configuration.settings
        self._configuration = configuration
        self.drain_timeout = settings.drain
        self._advice = advice
        self._ended = self.initial_state
        self._slots = TunnelSlots(settings.max_tunnels, configuration.slots)
        inherited = [one for one in (configuration.slots, configuration.tokens) if one is not None]
        self._supervisor = Supervisor(self, settings.workers, loop=settings.loop, descriptors=inherited)
        self._replies: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        await self._supervisor.start()

    def unready(self) -> str:
        return self._supervisor.unready()

    def workers(self) -> dict[str, tuple[int, bool]]:
        return self._supervisor.processes()

    async def state(self, *, whole: bool) -> WorkerState:  # noqa: ARG002  # nothing of it takes long
        """Return the sum of all workers' states, of those that have ended, and of this process's dropped lines."""
        own = WorkerState(Counts(), log_counters().dropped)
        return sum_states([own, *await self._supervisor.states(whole=True), self._ended])

    def counts(self) -> dict[int, Counts]:
        """Return what each worker had counted when it was asked last, by its process id."""
        return {worker.process.pid: worker.last_state.counts for worker in self._supervisor.workers}

    async def reload(self, configuration: None) -> None:  # noqa: ARG002  # only files are read again
        check_proxy(self._configuration.settings)
        self._supervisor.reload()

    async def drain(self, seconds: float) -> None:
        await self._supervisor.stop(seconds)

    async def close(self) -> None:
        await self.drain(0)
        for task in self._replies:
            task.cancel()

    def configuration(self, number: int) -> Configure[ProxyConfiguration]:
        """Return the configuration of a worker."""
        return Configure(msgspec.structs.replace(self._configuration, worker=number))

    def on_worker_message(self, worker: WorkerProcess[WorkerState], message: Any) -> None:
        """Reply to a worker that needs an origin's advice."""
        assert isinstance(message, AdviceQuery)
        task = asyncio.ensure_future(self._reply(worker, message))
        self._replies.add(task)
        task.add_done_callback(self._replies.discard)

    def on_worker_exit(self, worker: WorkerProcess[WorkerState]) -> None:
        """Keep the totals of a worker that has ended, and release its tunnel slots."""
        self._slots.reclaim(worker.number)
        ended = sum_states([self._ended, worker.last_state])
        ended.counts.tunnels = 0
        ended.counts.origins = dict(list(ended.counts.origins.items())[-_MAX_ORIGINS:])
        self._ended = ended

    async def _reply(self, worker: WorkerProcess[WorkerState], query: AdviceQuery) -> None:
        with suppress(asyncio.CancelledError):  # the proxy stops
            worker.channel.send(await answer_query(query, self._advice))


_SUMMARY_INTERVAL: Final = 60.0
_DRAW_KEY_SIZE: Final = 32
_SELF_SIGNED: Final = "self-signed certificate, for trying it out: tell clients to accept it (curl --proxy-insecure)"
_RESTART_KEYS: Final = (*(f"proxy.{name}" for name in Proxy.__struct_fields__), "log")
"""Keys that only a restart can change: a reload reads files again."""
_RELOADED: Final = "the certificate and the token keys read again"


class ProxyServer(Server):
    """A prefetch proxy in its life-cycle."""

    kind = "proxy"

    def __init__(self, read: ReadConfiguration) -> None:
        super().__init__()
        self._read = read
        self._tree, _ = read()
        settings = self._settings = self._tree.proxy
        self.loop = settings.loop
        self._address = Address.parse(settings.listen)
        self._counts = Counts()
        self._summary = TrafficSummary(now=time.time())
        self._summarizing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        settings = self._settings
        check_proxy(settings)
        configure_log(self._tree.log)
        asyncio.get_running_loop().set_exception_handler(log_exception)
        self._advice = AdviceService(
            settings.brand,
            tls=tls_context("proxy.advice_ca", settings.advice_ca),
            counts=self._counts,
            unreachable_for=settings.unreachable_hold,
            min_freshness=settings.min_freshness,
        )
        self.closing.callback(self._advice.close)
        await start_admin(self, settings.admin, self._tree.admin)
        addresses = self.closing.enter_context(reserve_addresses("--listen", self._address))
        _require_loopback_for_plaintext(settings, addresses)
        self._address = self._address._replace(port=addresses[0].port)
        configuration = ProxyConfiguration(
            settings=settings,
            log=self._tree.log,
            addresses=tuple(addresses),
            admin=tuple(self.admin),
            files=self._certificate_files(),
            key=os.urandom(_DRAW_KEY_SIZE),
            slots=create_slots(settings.workers),
            tokens=create_replay_table() if settings.token_keys else None,
        )
        backend = ProxyProcess if settings.workers == 1 else ProxyWorkers
        self.backend = self._proxy = backend(configuration, self._advice)
        self.closing.push_async_callback(self.backend.close)
        await self.backend.start()
        self._summarizing = asyncio.get_running_loop().create_task(self._log_summaries())

    def _certificate_files(self) -> tuple[str, str] | None:
        """Return the files of the certificate and its key; None in plaintext."""
        settings = self._settings
        if settings.self_signed:
            return self.closing.enter_context(self_signed(self._address.host))
        return None if settings.plaintext else (settings.cert, settings.key)

    def announce(self) -> None:
        settings = self._settings
        if settings.self_signed:
            log(f"{_SELF_SIGNED}")
        log(f"brand {_word(settings.brand)} workers {settings.workers} admin {admin_url(self)}")
        # Scripts take the address from this line, so it has nothing else.
        write_line(f"ready {'http' if settings.plaintext else 'https'}://{self._address}")

    async def reload(self) -> None:
        new, _ = self._read()
        await self.backend.reload(None)
        log(f"{_RELOADED}{restart_note(self._tree, new, _RESTART_KEYS)}")

    async def close(self) -> None:
        if self._summarizing is not None:
            await cancel_tasks([self._summarizing])
            await self._log_summary()
            cut = (await self.backend.state(whole=False)).cut
            if cut:
                are_cut = "tunnel had not ended and was cut" if cut == 1 else "tunnels had not ended and were cut"
                log(f"{cut} {are_cut}")
        await super().close()

    async def _log_summaries(self) -> None:
        while True:
            await asyncio.sleep(_SUMMARY_INTERVAL)
            await self._log_summary()

    async def _log_summary(self) -> None:
        """Log how many tunnels were opened since the last summary."""
        line = self._summary.line((await self.state(whole=False)).counts, now=time.time())
        if line is not None:
            write_line(line)

    async def samples(self, *, tables: bool) -> list[Sample]:
        """Return what each process has counted, for the dashboard: a row for each reason of refusals."""
        samples = []
        for process, counts in self._proxy.counts().items() if self._summarizing is not None else ():
            refused = {name: [count] for name, count in counts.connects.items() if name != ACCEPTED}
            totals = {"accepted": counts.connects.get(ACCEPTED, 0), "refused": sum(one for (one,) in refused.values())}
            totals |= {"received": counts.received, "sent": counts.sent}
            rows = {"refusals": refused} if tables else {}
            samples.append(Sample(totals, {"tunnels": counts.tunnels}, rows, process))
        return samples

    async def overview(self, minute: Minute) -> dict[str, Any]:  # noqa: ARG002  # it counts by reason
        """Return what the dashboard shows besides the rows of `minute`: as /api/state, with the origins used most."""
        shown = state_to_json(await self.state(whole=True))
        most = nlargest(MAX_ROWS, shown["origins"], key=lambda one: one["accepted"] + sum(one["refused"].values()))
        return shown | {"origins": most}

    def metrics(self, state: ProxyState) -> Iterator[Metric]:
        """Make the metrics of a proxy."""
        return proxy_metrics(state)

    def to_json(self, state: ProxyState) -> dict[str, Any]:
        """Return what /api/state shows."""
        return state_to_json(state)

    async def state(self, *, whole: bool) -> ProxyState:
        """Return the state; what is known of origins only if `whole`."""
        draining = self.unready() == "draining"
        now = time.time()
        if self._summarizing is None:  # it has not started
            return ProxyState(Counts(), {}, now)
        state = await self.backend.state(whole=whole)
        counts = sum_states([self._counts, state.counts])
        known = {origin: self._advice.known(origin, now=now) for origin in counts.origins} if whole else {}
        advice = {origin: advice for origin, advice in known.items() if advice is not None}
        return ProxyState(counts, advice, now, dropped=state.dropped, draining=draining)


def _require_loopback_for_plaintext(settings: Proxy, addresses: Sequence[Address]) -> None:
    is_exposed = not all(is_loopback(address.host) for address in addresses)
    fail_if(
        settings.plaintext and is_exposed and not settings.insecure,
        f"--plaintext at {settings.listen} would show CONNECT requests to others on the network; listen at "
        "127.0.0.1, use a certificate, or add --insecure where something before the proxy ends TLS",
    )


def _word(text: str) -> str:
    """Return a text without spaces and without characters that change a terminal, for a line of words."""
    return "-".join("".join(char if char.isprintable() else ascii(char)[1:-1] for char in text).split())
