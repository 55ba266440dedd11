"""A gate of one process: its life from the first sentence to the last; and what a gate of several does the same way."""

import dataclasses
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from msgspec.structs import replace

from headgate.config import Address, Configuration
from headgate.errors import ConfigurationError, HeadgateError
from headgate.observe import State, gate_metrics
from headgate.runtime.admin_server import AdminServer
from headgate.runtime.event_loop import Reloads, Signals, run, say
from headgate.runtime.gate.build import warn
from headgate.runtime.gate.options import GateOptions
from headgate.runtime.gate.process import Gate
from headgate.runtime.listen import address_sentence

if TYPE_CHECKING:
    from headgate.observe.admin import Readiness, ReadState

__all__ = ["announce", "open_admin", "open_demo", "read_again", "serve_alone"]


def serve_alone(options: GateOptions) -> int:
    """Serve from this process until a signal ends it; returns the exit code."""
    return run(lambda: _alone(options), loop=options.read()[0].gate.loop)


async def _alone(options: GateOptions) -> int:
    async with AsyncExitStack() as closing:
        options = await open_demo(options, closing)
        tree, _ = options.read()
        gate = Gate(tree)
        closing.push_async_callback(gate.end, 0)

        async def state(*, whole: bool) -> State:
            return await gate.whole_state() if whole else gate.state()

        admin = await open_admin(options, tree, closing, state, unready=gate.unready)
        reloads = Reloads(lambda: read_again(options, gate.change))
        closing.push_async_callback(reloads.end)
        signals = Signals(reloads.ask)
        address = await gate.start()
        announce(options, tree, address, admin)
        await signals.asked.wait()
        await reloads.end()
        await signals.unless_insisted(gate.end(gate.tree.gate.drain))
    return 0


async def open_demo(options: GateOptions, closing: AsyncExitStack) -> GateOptions:
    """Start the sample origin where one is asked for; returns the options with its address."""
    if not options.demo:
        return options
    from headgate.runtime.demo_origin import DemoOrigin

    sample = DemoOrigin()
    closing.push_async_callback(sample.close)
    url, read = await sample.start(), options.read

    def read_with_origin() -> tuple[Configuration, str | None]:
        tree, file = read()
        return replace(tree, gate=replace(tree.gate, origin=url)), file

    return dataclasses.replace(options, read=read_with_origin)


async def open_admin(
    options: GateOptions,
    tree: Configuration,
    closing: AsyncExitStack,
    state: "ReadState[State]",
    *,
    unready: "Readiness",
) -> Address | None:
    """Open the admin listener, if there is to be one; returns where it is.

    An address that nobody chose may be taken, by another gate on this machine: then there is none. Raises
    `ConfigurationError` for one that was chosen.
    """
    if not tree.gate.admin:
        return None
    address = Address.parse(tree.gate.admin)
    admin = AdminServer(state, unready, gate_metrics)
    try:
        await admin.start(address)
    except OSError as error:
        if options.require_admin or tree.gate.admin != Configuration().gate.admin:
            raise ConfigurationError(address_sentence("--admin", address, error)) from None
        return None
    closing.push_async_callback(admin.close)
    return Address(*admin.addresses[0])


def announce(options: GateOptions, tree: Configuration, address: Address, admin: Address | None) -> None:
    """Say that requests are accepted, and where; for a demonstration, also what to try."""
    gate = f"{'https' if tree.gate.tls.cert else 'http'}://{address}"
    admin_url = f"http://{admin}" if admin is not None else "none"
    if options.demo:
        from headgate.runtime.demo_origin import demo_banner

        print(demo_banner(gate, admin_url, tree.gate.origin), flush=True)  # noqa: T201  # the one thing it prints
    elif admin is None and tree.gate.admin:
        say(f"headgate: {tree.gate.admin} is taken, so there is no admin listener; choose another with --admin")
    warn(tree, say)
    gate_of = f"origin {tree.gate.origin} master {tree.gate.master} workers {tree.gate.workers}"
    say(f"headgate: {gate_of} admin {admin_url}")
    # Whoever waits for this line takes the address from it: it has no other.
    say(f"ready {gate}")


async def read_again(options: GateOptions, change: Callable[[Configuration], Awaitable[list[str]]]) -> None:
    """Read the configuration again and put it in force; a bad one leaves the old one in force and says so."""
    try:
        tree, file = options.read()
        frozen = await change(tree)
        warn(tree, say)
    except (HeadgateError, OSError) as error:
        say(f"headgate: {error}; the configuration in force stays as it is")
        return
    read = [*([file] if file else []), *(["the certificate"] if tree.gate.tls.cert else [])]
    rest = f"; a restart is needed for {', '.join(frozen)}" if frozen else ""
    say(f"headgate: {' and '.join(read) or 'nothing'} read again{rest}")
