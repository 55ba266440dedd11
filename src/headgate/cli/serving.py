"""A gate of one process: its life from the first sentence to the last; and what a gate of several does the same way."""

import dataclasses
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from headgate.cli.composing import warn
from headgate.cli.demo import SampleOrigin, leaflet
from headgate.cli.gate import Gate
from headgate.cli.reserving import address_sentence
from headgate.cli.running import Reloads, Signals, run, say
from headgate.cli.serve import Wish
from headgate.config import Address, Configuration
from headgate.errors import ConfigurationError, HeadgateError
from headgate.observe import Admin, Read, Readiness, State, gate_metrics

__all__ = ["announce", "open_admin", "open_demo", "read_again", "serve_alone"]


def serve_alone(wish: Wish) -> int:
    """Serve from this process until a signal ends it; returns the exit code."""
    return run(lambda: _alone(wish), loop=wish.read()[0].gate.loop)


async def _alone(wish: Wish) -> int:
    async with AsyncExitStack() as closing:
        wish = await open_demo(wish, closing)
        tree, _ = wish.read()
        gate = Gate(tree)
        closing.push_async_callback(gate.end, 0)

        async def state(*, whole: bool) -> State:
            return await gate.whole_state() if whole else gate.state()

        admin = await open_admin(wish, tree, closing, state, unready=gate.unready)
        reloads = Reloads(lambda: read_again(wish, gate.change))
        closing.push_async_callback(reloads.end)
        signals = Signals(reloads.ask)
        address = await gate.start()
        announce(wish, tree, address, admin)
        await signals.asked.wait()
        await reloads.end()
        await signals.unless_insisted(gate.end(gate.tree.gate.drain))
    return 0


async def open_demo(wish: Wish, closing: AsyncExitStack) -> Wish:
    """Start the sample origin where one is wished for; returns the wish with its address."""
    if not wish.demo:
        return wish
    sample = SampleOrigin()
    closing.push_async_callback(sample.close)
    return dataclasses.replace(wish, gate=wish.gate | {"origin": await sample.start()})


async def open_admin(
    wish: Wish,
    tree: Configuration,
    closing: AsyncExitStack,
    state: Read[State],
    *,
    unready: Readiness,
) -> Address | None:
    """Open the admin listener, if there is to be one; returns where it is.

    An address that nobody chose may be taken, by another gate on this machine: then there is none. Raises
    `ConfigurationError` for one that was chosen.
    """
    if not tree.gate.admin:
        return None
    address = Address.parse(tree.gate.admin)
    admin = Admin(state, unready, gate_metrics)
    try:
        bound = await admin.listen(*address)
    except OSError as error:
        if wish.admin_is_chosen or tree.gate.admin != Configuration().gate.admin:
            raise ConfigurationError(address_sentence("--admin", address, error)) from None
        return None
    closing.push_async_callback(admin.close)
    return Address(*bound)


def announce(wish: Wish, tree: Configuration, address: Address, admin: Address | None) -> None:
    """Say that requests are accepted, and where; for a demonstration, also what to try."""
    gate = f"{'https' if tree.gate.tls.cert else 'http'}://{address}"
    admin_url = f"http://{admin}" if admin is not None else "none"
    if wish.demo:
        print(leaflet(gate, admin_url, tree.gate.origin), flush=True)  # noqa: T201  # the one thing it prints
    elif admin is None and tree.gate.admin:
        say(f"headgate: {tree.gate.admin} is taken, so there is no admin listener; choose another with --admin")
    warn(tree, say)
    gate_of = f"origin {tree.gate.origin} master {tree.gate.master} workers {tree.gate.workers}"
    say(f"headgate: {gate_of} admin {admin_url}")
    # Whoever waits for this line takes the address from it: it has no other.
    say(f"ready {gate}")


async def read_again(wish: Wish, change: Callable[[Configuration], Awaitable[list[str]]]) -> None:
    """Read the configuration again and put it in force; a bad one leaves the old one in force and says so."""
    try:
        tree, file = wish.read()
        frozen = await change(tree)
        warn(tree, say)
    except (HeadgateError, OSError) as error:
        say(f"headgate: {error}; the configuration in force stays as it is")
        return
    read = [*([file] if file else []), *(["the certificate"] if tree.gate.tls.cert else [])]
    rest = f"; a restart is needed for {', '.join(frozen)}" if frozen else ""
    say(f"headgate: {' and '.join(read) or 'nothing'} read again{rest}")
