"""What `headgate ctl` asks of a server, and has it do: `run_control` is called by the admin listener.

A query has a name and arguments; `GateControl` answers it in a process of a gate, `MasterControl` at a master. Reads
change nothing. Identifiers are shown as in /api/state: addresses as they are, others, which may be credentials, as
digests.
"""

import asyncio
import ipaddress
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final

import msgspec

from headgate.errors import ConfigurationError, HeadgateError, fail_if
from headgate.limit import DelayUntil, Domain, Gatekeeper
from headgate.limit.history import ALGORITHMS
from headgate.limit.messages import MAX_CONTROL_FRAME, header_identifier
from headgate.link import MasterLink
from headgate.observe.state import identifier_digest
from headgate.origin.gateway.record import RequestRecord
from headgate.origin.identify import client_address
from headgate.release import ASAP
from headgate.runtime.access_log import SERVED
from headgate.runtime.lifecycle import Server
from headgate.runtime.log import log

_MAX_RECENT: Final = 1_000
_MAX_TEXT: Final = 200
"""Characters of a text of a client that are kept."""
_MAX_SHOWN: Final = 10
_MAX_SECONDS: Final = 31 * 86_400.0
_ROUNDING: Final = 0.01
_ANSWER_DELAY: Final = 0.1
"""Seconds in which the answer to `drain` is sent."""
_CAUSES: Final = {
    "concurrency": "the origin has as many requests in flight as the concurrency limit permits",
    "full": "all origins have as many requests as max_in_flight permits",
    "denied": "gate.deny has the address of the client",
    "malformed": "the request is malformed",
}
"""Why requests are refused, by the reason of the record."""


class RecentRequest(msgspec.Struct, gc=False, omit_defaults=True):
    """What is kept of a request; the texts of a client are cut."""

    request_id: str
    received: float
    """Seconds since 1970."""
    client: str
    domain: str = ""
    verdict: str = ""
    status: int = 0
    reason: str = ""
    cause: str = ""
    """Why it was refused, as a sentence."""
    held_until: float = 0.0
    method: str = ""
    host: str = ""
    path: str = ""
    origin: str = ""


class GateControl:
    """The last requests of a process of a gate, and its holds; `counted_at` names the master of an identifier."""

    def __init__(self, counted_at: Callable[[str, bytes], str]) -> None:
        self._counted_at = counted_at
        self._gatekeeper: Gatekeeper
        self._domains: dict[str, Domain] = {}
        self._refused: deque[tuple[bytes, RecentRequest]] = deque(maxlen=_MAX_RECENT)
        self._others: deque[tuple[bytes, RecentRequest]] = deque(maxlen=_MAX_RECENT)

    def configure(self, gatekeeper: Gatekeeper, domains: Iterable[Domain]) -> None:
        """Replace the gatekeeper and the domains, at the start and after a reload."""
        self._gatekeeper, self._domains = gatekeeper, {domain.name: domain for domain in domains}

    def add(self, record: RequestRecord) -> None:
        """Keep a completed request."""
        request, accounting, is_served = record.request, record.accounting, record.reason in SERVED
        recent = RecentRequest(record.request_id.decode(), round(record.received, 6), record.client)
        recent.status, recent.reason, recent.origin = record.status, record.reason, record.upstream
        key = b""
        if request is not None:
            texts = (request.method, request.host, request.path)
            recent.method, recent.host, recent.path = (text[:_MAX_TEXT].decode("latin-1") for text in texts)
        if accounting is not None:
            key, recent.domain, recent.verdict = accounting.identifier, accounting.domain, accounting.status.value
        if not is_served:
            recent.cause = _CAUSES.get(record.reason, "")
            if accounting is not None and record.reason in {"rule", "lifeboat"}:
                recent.held_until = round(accounting.release, 3)
                by = self._holder(accounting.domain, key, accounting.release, record.received)
                recent.cause = f"in domain {accounting.domain!r}, the client is held by {by}"
        (self._others if is_served else self._refused).append((key, recent))

    def find(self, digest: str) -> list[bytes]:
        """Return the identifiers of recent requests that have a digest."""
        return list({key for key, _ in chain(self._refused, self._others) if identifier_digest(key) == digest})

    def why(self, identifiers: Sequence[bytes], request_id: str = "") -> dict[str, Any]:
        """Return the recent requests with these identifiers or this id, newest first, and the holds in force."""
        wanted = set(identifiers)
        requests = [
            (key, one)
            for key, one in chain(self._refused, self._others)
            if (one.request_id == request_id if request_id else key in wanted)
        ]
        now, found = time.time(), [*identifiers, *(key for key, _ in requests if request_id and key)]
        newest = sorted(requests, key=lambda pair: -pair[1].received)[:_MAX_SHOWN]
        shown = [
            msgspec.to_builtins(one) | ({"identifier": identifier_digest(key)} if key else {}) for key, one in newest
        ]
        releases = ((name, key, self._gatekeeper.held(name, key, now=now)) for name in self._domains for key in found)
        held = [
            _hold(name, key, release, now) | {"by": self._holder(name, key, release, now)}
            for name, key, release in releases
            if release > now
        ]
        return {"requests": shown, "held": held}

    def hold(self, identifiers: Sequence[bytes], seconds: float, domain: str = "") -> int:
        """Hold identifiers in a domain, or in all; return the number of domains."""
        names = [name for name in self._domains if domain in {"", name}]
        for name in names:
            for key in identifiers:
                self._gatekeeper.hold(name, key, seconds, now=time.time())
        return len(names)

    def release(self, identifiers: Sequence[bytes]) -> int:
        """Release identifiers in all domains; return the number of holds ended."""
        now = time.time()
        return sum(self._gatekeeper.reset(name, key, now=now) for name in self._domains for key in identifiers)

    def _holder(self, name: str, identifier: bytes, release: float, now: float) -> str:
        """Return what holds an identifier: an operator, or a rule and the master that applies it."""
        if self._gatekeeper.by_hand.get((name, identifier), ASAP) >= release - _ROUNDING:
            return "an operator"
        domain, history = self._domains.get(name), self._gatekeeper.history
        known = history(name, identifier) if history is not None and domain is not None else None
        master = self._counted_at(name, identifier)
        where = "the embedded master" if master == "embedded" else f"the master {master}"
        return f"{_rule(domain, known, now)}, applied by {where}"


class MasterControl:
    """The holds of a master that has gatekeepers."""

    def __init__(self, link: MasterLink) -> None:
        self._link = link

    def find(self, digest: str) -> list[bytes]:  # noqa: ARG002  # a master has no requests
        """Return nothing."""
        return []

    def why(self, identifiers: Sequence[bytes], request_id: str = "") -> dict[str, Any]:  # noqa: ARG002
        """Return the holds in force; a master knows no ids of requests."""
        master, now = self._link.master, time.time()
        behind = master.clock.behind
        held = [
            _hold(name, key, release, now) | {"by": _rule(domain, master.history(name, key), now)}
            for name, domain in master.domains.items()
            for key in identifiers
            if (release := master.held(name, key, now + behind) - behind) > now
        ]
        return {"requests": [], "held": held}

    def hold(self, identifiers: Sequence[bytes], seconds: float, domain: str = "") -> int:
        """Hold identifiers at all gatekeepers of a domain, or of all; return the number of domains."""
        master, now = self._link.master, time.time()
        names = [name for name in master.domains if domain in {"", name}]
        for name in names:
            for key in identifiers:
                master.learn(name, key, now + seconds, now)
                self._link.publish(DelayUntil(name, key, now + seconds))
        return len(names)

    def release(self, identifiers: Sequence[bytes]) -> int:
        """Forget the histories of identifiers; return the number of holds ended. Gatekeepers keep theirs."""
        count = len(self.why(identifiers)["held"])
        for name in self._link.master.domains:
            for key in identifiers:
                self._link.master.reset(name, key)
        return count


def _hold(name: str, identifier: bytes, release: float, now: float) -> dict[str, Any]:
    seconds, until = round(release - now, 3), round(release, 3)
    return {"identifier": identifier_digest(identifier), "domain": name, "until": until, "seconds": seconds}


def _rule(domain: Domain | None, history: Sequence[float] | None, now: float) -> str:
    """Name the rule that holds longest by a history, all rules if that is unknown."""
    if domain is None or not domain.rules:
        return "a rule that this process does not know"
    rules = domain.rules
    if history is not None and len(rules) > 1:
        available = ALGORITHMS[domain.algorithm](rules).available(history, now)  # type: ignore[arg-type]  # it only reads
        rules = (max(zip(rules, available, strict=True), key=lambda one: (1 - one[1]) * one[0].interval)[0],)
    return f"the rule {' or '.join(map(str, rules))}"


async def run_control(server: Server, name: str, arguments: Mapping[str, str], peer: str) -> Any:
    """Do what `headgate ctl` asks for `peer`; return a JSON value.

    Raises `ConfigurationError` for invalid arguments, and another `HeadgateError` for what is not found or possible.
    """
    text, domain = arguments.get("identifier", ""), arguments.get("domain", "")
    if name == "drain":
        log(f"ctl: drain, by {peer}")
        asyncio.get_running_loop().call_later(_ANSWER_DELAY, server.stop, None)
        return {"done": "draining, as after SIGTERM: /readyz answers 503, then the process ends"}
    if name == "mode":
        mode = arguments.get("mode", "")
        fail_if(mode not in {"enforce", "shadow"}, f"mode must be enforce or shadow, got {mode!r:.80}")
        await server.set_mode(domain, mode)
        log(f"ctl: mode {domain!r} {mode}, by {peer}")
        return {"done": f"domain {domain!r}: mode {mode} until the next reload or restart"}
    if name == "holds" and not text:
        state = server.to_json(await server.state(whole=True))
        shown = [{"domain": one.name, "holds": one.holds, "longest": one.held} for one in getattr(state, "domains", ())]
        return {"domains": shown}
    if name in {"why", "holds"}:
        return await _look_up(server, text, arguments.get("request", ""), holds_only=name == "holds")
    return await _act(server, name, arguments, peer)


async def _look_up(server: Server, text: str, request_id: str, *, holds_only: bool) -> Any:
    identifiers = [] if request_id else await _identifiers(server, text)
    answers = await _ask(server, "why", {"identifiers": identifiers, "request_id": request_id})
    requests = sorted(chain.from_iterable(one["requests"] for one in answers), key=lambda one: -one["received"])
    held = {(one["domain"], one["identifier"]): one for one in chain.from_iterable(one["held"] for one in answers)}
    if not held and (holds_only or not requests):
        what = f"no request {request_id!r:.200}" if request_id else f"{text!r:.200} is not held, and no request of it"
        raise HeadgateError(f"{what} is among the last {_MAX_RECENT} of a process of this server")
    return ({} if holds_only else {"requests": requests[:_MAX_SHOWN]}) | {"held": [*held.values()]}


async def _act(server: Server, name: str, arguments: Mapping[str, str], peer: str) -> Any:
    identifiers = await _identifiers(server, arguments.get("identifier", ""))
    shown, argument = identifier_digest(identifiers[0]), dict[str, Any](identifiers=identifiers)
    if name == "hold":
        if _is_address(shown):
            argument["identifiers"] = identifiers[:1]
        argument |= {"seconds": _seconds(arguments.get("seconds", "")), "domain": arguments.get("domain", "")}
    count = max(await _ask(server, name, argument))
    scope = f"; {server.scope()}" if server.scope() else ""
    what = f"{shown} for {argument['seconds']:g} s" if name == "hold" else shown
    log(f"ctl: {name} {what}, by {peer}: {count} {'domains' if name == 'hold' else 'holds'}")
    if not count:
        unknown = f"no domain {arguments.get('domain', '')!r:.80}"
        raise HeadgateError(unknown if name == "hold" else f"{shown} was not held; its requests are forgotten{scope}")
    done = f"{what}, held in {count} domains" if name == "hold" else f"{shown} released, {count} holds"
    return {"done": f"{done}{scope}"}


async def _ask(server: Server, name: str, argument: Any) -> list[Any]:
    answers = await server.ask(name, argument)
    if not answers or None in answers:
        raise HeadgateError("a process of this server did not answer, or this server has no clients to hold; try again")
    return answers


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 < float(text) <= _MAX_SECONDS:
            return float(text)
    raise ConfigurationError(f"seconds must be a number of up to {_MAX_SECONDS:.0f}, got {text!r:.80}")


async def _identifiers(server: Server, text: str) -> list[bytes]:
    """Return the identifiers that a text can mean: an address, the value of a header, or a digest of one."""
    fail_if(not 0 < len(text.encode()) <= MAX_CONTROL_FRAME, "an identifier has 1 to 255 bytes")
    if text.startswith("sha256:"):
        found = sorted(set(chain.from_iterable(await _ask(server, "find", {"digest": text}))))
        return found or [text.encode()]
    return [*dict.fromkeys(_meanings(text, server.ipv6_prefix()))]


def _meanings(text: str, ipv6_prefix: int) -> Iterator[bytes]:
    if _is_address(text):
        address = client_address(ipv6_prefix=ipv6_prefix).per_connection(text.partition("/")[0]) or b""
        is_network = "/" in text and str(ipaddress.ip_network(text, strict=False)) != address.decode()
        fail_if(is_network, f"{text} is a network; name one client, or use gate.deny for a network")
        yield address
    yield text.encode()
    for field in (b"", b"authorization"):
        yield header_identifier(field, text.encode())


def _is_address(text: str) -> bool:
    with suppress(ValueError):
        return bool(ipaddress.ip_network(text, strict=False))
    return False
