"""A gate of several processes: workers that share the listener, and a parent with their one master and the admin.

The parent proxies nothing. It starts the workers, starts again those that die, sums what they tell, passes on what it
is told, and ends them. The bus between them is a socket in a private directory that goes when the parent goes.
"""

import asyncio
import signal
import socket
import sys
import tempfile
import time
from collections import deque
from contextlib import AsyncExitStack
from pathlib import Path

from msgspec.structs import replace

from headgate.cli.channel import Ask, Channel, Configure, End, Failed, FromWorker, Ready, Told
from headgate.cli.composing import check_composition, compose, require_gate
from headgate.cli.gate import address_sentence, frozen_changes
from headgate.cli.running import Signals, run, say
from headgate.cli.serve import Wish
from headgate.cli.serving import announce, open_admin, open_demo, read_again
from headgate.config import Address, Configuration
from headgate.errors import ConfigurationError
from headgate.limit import Master
from headgate.link import MasterLink
from headgate.observe import State, merged

__all__ = ["Workers", "serve_with_workers"]

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 10.0
_LASTING = 10.0
"""Seconds after which a worker counts as having worked."""
_PATIENCE = 1.0
"""Seconds a worker has to tell its state; what it told last counts for one that does not."""
_GRACE = 2.0
"""Seconds a worker has to be gone after its time is over."""


def serve_with_workers(wish: Wish) -> int:
    """Serve from several processes until a signal ends them; returns the exit code."""
    return run(lambda: _serve(wish), loop=wish.read()[0].gate.loop)


async def _serve(wish: Wish) -> int:
    async with AsyncExitStack() as closing:
        wish = await open_demo(wish, closing)
        tree, _ = wish.read()
        require_gate(tree)
        check_composition(tree)
        address = _reserve(Address.parse(tree.gate.listen), closing)
        workers = Workers(tree, address, closing)
        closing.push_async_callback(workers.end, 0)
        admin = await open_admin(wish, tree, closing, workers.state, unready=workers.unready)
        signals = Signals(lambda: read_again(wish, workers.change))
        await workers.start()
        announce(wish, tree, address, admin)
        await signals.asked.wait()
        await signals.unless_insisted(workers.end(tree.gate.drain))
    return 0


def _reserve(address: Address, closing: AsyncExitStack) -> Address:
    """Make sure of the address before workers share it; returns it with its true port.

    A socket that only wants to share would be let in beside another gate's: so first one is bound that does not. The
    one that stays is bound and never listens; it keeps a port that the system chose.
    """
    try:
        (family, *_, where), *_ = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
            port = probe.getsockname()[1]
        kept = closing.enter_context(socket.socket(family, socket.SOCK_STREAM))
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind((where[0], port, *where[2:]))
    except OSError as error:
        raise ConfigurationError(address_sentence("--listen", address, error)) from None
    return Address(address.host, port)


class _Worker:
    """One worker process as its parent sees it."""

    def __init__(self, process: asyncio.subprocess.Process, channel: Channel) -> None:
        self.process = process
        self.channel = channel
        self.ready = False
        self.failure = ""
        self.last = State(workers=0)
        """What it told last."""
        self._asked: deque[asyncio.Future[State]] = deque()
        self._settled = asyncio.Event()
        self._listening = asyncio.get_running_loop().create_task(self._listen())

    async def settle(self) -> None:
        """Come back when it is ready, or is not going to be."""
        await self._settled.wait()

    async def ask(self, *, held: bool) -> State:
        """Give what it is doing now, or what it told last when it does not tell in time."""
        if not self.ready:
            return self.last
        answer: asyncio.Future[State] = asyncio.get_running_loop().create_future()
        self._asked.append(answer)
        self.channel.send(Ask(held))
        await asyncio.wait([answer], timeout=_PATIENCE)
        return answer.result() if answer.done() else self.last

    async def gone(self) -> str:
        """Come back when its process has ended and all it said has been heard; returns why it ended."""
        code = await self.process.wait()
        await self._listening
        await self.channel.close()
        return self.failure or (f"exit {code}" if code >= 0 else signal.Signals(-code).name)

    async def _listen(self) -> None:
        while (message := await self.channel.receive()) is not None:
            if isinstance(message, Told):
                self.last = message.state
                if self._asked:
                    self._asked.popleft().set_result(message.state)
            elif isinstance(message, Failed):
                self.failure = message.sentence
            elif isinstance(message, Ready):
                self.ready = True
                self._settled.set()
        self.ready = False
        self._settled.set()
        for waiting in self._asked:
            waiting.set_result(self.last)


class Workers:
    """All the workers, and the master they share unless it is elsewhere; what is opened goes with `closing`."""

    def __init__(self, tree: Configuration, address: Address, closing: AsyncExitStack) -> None:
        self._tree = tree
        self._address = address
        self._running: dict[int, _Worker] = {}
        self._past = State(workers=0)
        self._ending = False
        self._tasks: list[asyncio.Task[None]] = []
        self._link: MasterLink | None = None
        self._bus = tree.gate.master
        if tree.gate.master == "embedded":
            folder = closing.enter_context(tempfile.TemporaryDirectory(prefix="headgate-"))
            self._bus = f"ipc://{Path(folder) / 'bus'}"
            self._link = MasterLink(self._new_master(tree), self._bus)
            closing.callback(self._link.close)

    async def start(self) -> None:
        """Start them; comes back when all accept. Raises `ConfigurationError` when one cannot."""
        loop = asyncio.get_running_loop()
        if self._link is not None:
            self._link.start(loop)
        workers = await asyncio.gather(*(self._spawn() for _ in range(self._tree.gate.workers)))
        self._tasks = [loop.create_task(self._keep(worker)) for worker in workers]
        self._tasks.append(loop.create_task(self._poll()))

    def unready(self) -> str:
        """Say why no request is accepted; empty when they are."""
        if self._ending:
            return "draining"
        return "" if any(worker.ready for worker in self._running.values()) else "starting"

    async def state(self, *, held: bool) -> State:
        """Ask every worker; give the sum, with what workers told that are no more."""
        workers = list(self._running.values())
        told = await asyncio.gather(*(worker.ask(held=held) for worker in workers))
        # One that ended meanwhile counts in the past already.
        living = [state for worker, state in zip(workers, told, strict=True) if worker.process.pid in self._running]
        summed = merged([self._past, *living])
        counters = dict(summed.counters)
        if self._link is not None:
            master = self._link.master
            counters |= {"histories_evicted": master.evicted, "shadowed": master.shadowed}
        return replace(summed, master=self._tree.gate.master, counters=counters)

    def change(self, tree: Configuration) -> list[str]:
        """Put another configuration in force in all workers; returns the keys that need a restart."""
        frozen = frozen_changes(self._tree, tree)
        require_gate(tree)
        check_composition(tree)
        gate = replace(tree.gate, workers=self._tree.gate.workers, master=self._tree.gate.master)
        self._tree = replace(tree, gate=gate)
        if self._link is not None:
            master = self._new_master(tree)
            master.adopt(self._link.master)
            self._link.change(master)
        for worker in self._running.values():
            worker.channel.send(Configure(self._for_worker()))
        return frozen

    async def end(self, seconds: float) -> None:
        """End them all: politely, and after `seconds` not."""
        if self._ending:
            seconds = 0
        self._ending = True
        workers = list(self._running.values())
        for worker in workers:
            worker.channel.send(End(seconds))
        gone = [asyncio.ensure_future(worker.process.wait()) for worker in workers]
        try:
            if gone:
                await asyncio.wait(gone, timeout=seconds + _GRACE)
        finally:
            for worker in workers:
                if worker.process.returncode is None:
                    worker.process.kill()
            await asyncio.gather(*gone)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _new_master(self, tree: Configuration) -> Master:
        return Master(compose(tree).domains, max_identifiers=tree.master.max_identifiers)

    def _for_worker(self) -> Configuration:
        """Give the configuration as a worker needs it: the true port, and the master where it really is."""
        gate = replace(self._tree.gate, listen=str(self._address), master=self._bus)
        if self._link is not None:
            # Between neighbours what counts is how soon the master knows, not how little is written.
            gate = replace(gate, accounting="frames")
        return replace(self._tree, gate=gate)

    async def _spawn(self) -> _Worker:
        """Start a worker; comes back when it accepts. Raises `ConfigurationError` when it cannot."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "headgate.cli.worker", str(theirs.fileno()), self._tree.gate.loop),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                # Ctrl-C at the terminal is for the parent, which tells the workers.
                start_new_session=True,
            )
        worker = _Worker(process, await Channel.over(ours, FromWorker))
        self._running[process.pid] = worker
        worker.channel.send(Configure(self._for_worker()))
        await worker.settle()
        if not worker.ready:
            why = await worker.gone()
            self._bury(worker)
            raise ConfigurationError(why)
        return worker

    def _bury(self, worker: _Worker) -> None:
        """Keep what a worker that is gone has counted."""
        if self._running.pop(worker.process.pid, None) is not None:
            last = worker.last
            domains = tuple(replace(domain, held=()) for domain in last.domains)
            ended = replace(last, domains=domains, delayed_now=0, connections=0, workers=0)
            self._past = merged([self._past, ended])

    async def _keep(self, worker: _Worker) -> None:
        """Start another worker whenever one ends, pausing longer the sooner they do."""
        pause = _FIRST_PAUSE
        while not self._ending:
            began = time.monotonic()
            why = await worker.gone()
            self._bury(worker)
            pause = _FIRST_PAUSE if time.monotonic() - began > _LASTING else min(2 * pause, _LONGEST_PAUSE)
            while not self._ending:
                say(f"headgate: worker {worker.process.pid} ended ({why}); another one starts in {pause:g} s")
                await asyncio.sleep(pause)
                try:
                    worker = await self._spawn()
                except (ConfigurationError, OSError) as error:
                    why, pause = str(error), min(2 * pause, _LONGEST_PAUSE)
                else:
                    break

    async def _poll(self) -> None:
        """Know what each worker has counted, for when it is gone."""
        while True:
            await asyncio.sleep(_PATIENCE)
            await asyncio.gather(*(worker.ask(held=False) for worker in list(self._running.values())))
