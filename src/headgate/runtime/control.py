"""What `headgate ctl` asks of a server, and has it do: `run_control` is called by the admin listener.

Each process that holds clients answers queries with its `ProcessControl`. Reads change nothing. Identifiers are shown
as in /api/state of a master: addresses as they are, others, which may be credentials, as digests.
"""

import asyncio
import ipaddress
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final, TypeAlias

from headgate.errors import ConfigurationError, HeadgateError, MissingExtra, fail_if
from headgate.limit import DelayUntil, Domain, Gatekeeper, Rule
from headgate.limit.gatekeeper import keep_latest
from headgate.limit.history import ALGORITHMS
from headgate.limit.messages import MAX_CONTROL_FRAME, header_identifier
from headgate.link import MasterLink
from headgate.observe.state import identifier_digest
from headgate.origin.gateway.meter import SERVED
from headgate.origin.gateway.record import RequestRecord
from headgate.origin.identify import ClientAddress, client_address
from headgate.release import ASAP
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
    "challenge": "the domain is for agents that sign their requests, and no signature of this one was verified",
}
"""Why requests are refused, by the reason of the record; other reasons speak for themselves."""


class MasterHolds:
    """The holds of a master that has gatekeepers elsewhere."""

    def __init__(self, link: MasterLink, by_hand: dict[tuple[str, bytes], float]) -> None:
        self._link, self._master = link, link.master
        self.by_hand, self.history = by_hand, link.master.history

    def held(self, domain: str, identifier: bytes, *, now: float) -> float:
        """Return until when an identifier is held."""
        behind = self._master.clock.behind
        return self._master.held(domain, identifier, now + behind) - behind

    def hold(self, domain: str, identifier: bytes, seconds: float, *, now: float) -> None:
        """Hold an identifier at all gatekeepers of a domain."""
        keep_latest(self.by_hand, (domain, identifier), now + seconds)
        self._master.learn(domain, identifier, now + seconds, now)
        self._link.publish(DelayUntil(domain, identifier, now + seconds))

    def reset(self, domain: str, identifier: bytes, *, now: float) -> bool:
        """Forget an identifier; gatekeepers keep their holds. Return whether it was held."""
        release = self.held(domain, identifier, now=now)
        self._master.reset(domain, identifier)
        return release > now


Holds: TypeAlias = Gatekeeper | MasterHolds


class ProcessControl:
    """The holds of a process and its last requests; `counted_at` names the master of an identifier, or is empty.

    `find`, `why`, `hold` and `release` answer the queries of these names. None of them raises.
    """

    def __init__(self, counted_at: Callable[[str, bytes], str] = lambda *_: "") -> None:
        self._counted_at = counted_at
        self._refused: deque[tuple[bytes, dict[str, Any]]] = deque(maxlen=_MAX_RECENT)
        self._others: deque[tuple[bytes, dict[str, Any]]] = deque(maxlen=_MAX_RECENT)

    def configure(self, holds: Holds, domains: Iterable[Domain], address: ClientAddress) -> "ProcessControl":
        """Replace what may change in a reload."""
        self._holds, self._domains, self._address = holds, {domain.name: domain for domain in domains}, address
        several = (domain for domain in self._domains.values() if len(domain.rules) > 1)
        self._algorithms = {domain.name: ALGORITHMS[domain.algorithm](domain.rules) for domain in several}
        return self

    def add(self, record: RequestRecord) -> None:
        """Keep a completed request."""
        request, accounting, reason = record.request, record.accounting, record.reason
        kept = {
            "request_id": record.request_id.decode(),
            "received": record.received,
            "status": record.status,
            "agent": record.agent,
            "reason": reason,
            "cause": _CAUSES.get(reason),
            "peer": record.client,
            "upstream": record.upstream,
        }
        if request is not None:
            texts = {"method": request.method, "host": request.host, "path": request.path}
            kept |= {name: text[:_MAX_TEXT].decode("latin-1") for name, text in texts.items()}
        if accounting is not None:
            kept |= {"domain": accounting.domain, "verdict": accounting.status.value.lower()}
            if reason in {"rule", "lifeboat"}:
                kept["rules"] = self._rules(
                    accounting.domain, accounting.identifier, accounting.release, record.received
                )
                kept["held_until"] = accounting.release
        requests = self._others if reason in SERVED else self._refused
        requests.append((b"" if accounting is None else accounting.identifier, kept))

    def find(self, text: str) -> list[bytes]:
        """Return the identifiers that an address, the value of a header, or a digest can mean, the likeliest first."""
        if text.startswith("sha256:"):
            keys = {key for key, _ in chain(self._refused, self._others) if identifier_digest(key) == text}
            return [*keys, text.encode()]
        if text.startswith("https://"):
            with suppress(MissingExtra):
                from headgate.identity import agent_url

                text = url.identifier if (url := agent_url(text)) is not None else text
        value = text.encode()
        likeliest = value if text.startswith("https://") else header_identifier(b"authorization", value)
        if _is_address(text):
            likeliest = self._address.per_connection(text.partition("/")[0]) or value
        return [likeliest, value, header_identifier(b"", value), header_identifier(b"authorization", value)]

    def why(self, identifiers: Sequence[bytes], request_id: str) -> dict[str, Any]:
        """Return the last requests of identifiers, or with an id, and the holds in force."""
        now, wanted = time.time(), set(identifiers)
        requests = [
            (key, kept)
            for key, kept in sorted(chain(self._refused, self._others), key=lambda pair: -pair[1]["received"])
            if (kept["request_id"] == request_id if request_id else key in wanted)
        ][:_MAX_SHOWN]
        wanted |= {key for key, _ in requests if key}
        releases = ((name, key, self._holds.held(name, key, now=now)) for name in self._domains for key in wanted)
        held = [
            {
                "identifier": identifier_digest(key),
                "domain": name,
                "until": round(release, 3),
                "seconds": round(release - now, 3),
                "by": self._holder(name, key, self._rules(name, key, release, now)),
            }
            for name, key, release in releases
            if release > now
        ]
        return {"requests": [self._shown(*request) for request in requests], "held": held}

    def hold(self, identifiers: Sequence[bytes], seconds: float) -> int:
        """Hold identifiers in all domains; return the number of domains."""
        for name in self._domains:
            for key in identifiers:
                self._holds.hold(name, key, seconds, now=time.time())
        return len(self._domains)

    def release(self, identifiers: Sequence[bytes]) -> int:
        """Forget identifiers in all domains; return the number of holds ended."""
        now = time.time()
        return sum(self._holds.reset(name, key, now=now) for name in self._domains for key in identifiers)

    def _rules(self, name: str, identifier: bytes, release: float, now: float) -> tuple[Rule, ...] | None:
        """Return the rule that holds an identifier, all rules if it is unknown which; None for an operator."""
        if self._holds.by_hand.get((name, identifier), ASAP) >= release - _ROUNDING:
            return None
        domain, algorithm, history = self._domains.get(name), self._algorithms.get(name), self._holds.history
        known = history(name, identifier) if algorithm is not None and history is not None else None
        rules = () if domain is None else domain.rules
        if known is None or algorithm is None:
            return rules
        available = algorithm.available(known, now)  # type: ignore[arg-type]  # it only reads
        waits = [(1 - left) * rule.interval for rule, left in zip(rules, available, strict=True)]
        return (rules[waits.index(max(waits))],)

    def _holder(self, name: str, identifier: bytes, rules: tuple[Rule, ...] | None) -> str:
        """Name who holds an identifier: an operator, or rules and the master that applies them."""
        if rules is None:
            return "an operator"
        master = self._counted_at(name, identifier)
        where = "the embedded master" if master == "embedded" else f"the master {master}"
        what = f"the rule {' or '.join(map(str, rules))}" if rules else "a rule that this process does not know"
        return f"{what}, applied by {where}" if master else what

    def _shown(self, key: bytes, kept: dict[str, Any]) -> dict[str, Any]:
        shown = {name: value for name, value in kept.items() if value and name != "rules"}
        if "rules" in kept:
            by = self._holder(kept["domain"], key, kept["rules"])
            shown["cause"] = f"in domain {kept['domain']!r}, the client is held by {by}"
        return shown | ({"identifier": identifier_digest(key)} if key else {})


def master_control(
    link: MasterLink, ipv6_prefix: int, by_hand: dict[tuple[str, bytes], float] | None = None
) -> ProcessControl:
    """Return what answers the queries to a master; `by_hand` has the holds that an operator has made."""
    return ProcessControl().configure(
        MasterHolds(link, {} if by_hand is None else by_hand),
        link.master.domains.values(),
        client_address(ipv6_prefix=ipv6_prefix),
    )


async def run_control(server: Server, name: str, arguments: Mapping[str, str], peer: str) -> Any:
    """Do what `headgate ctl` asks for `peer`; return a JSON value.

    Raises `ConfigurationError` for invalid arguments, and another `HeadgateError` for what is not found or possible.
    """
    text, request_id, domain = (arguments.get(key, "") for key in ("identifier", "request", "domain"))
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
        domains = getattr(await server.state(whole=True), "domains", ())
        return {"domains": [{"domain": one.name, "holds": one.holds, "longest": one.held} for one in domains]}
    identifiers = [] if request_id else await _identifiers(server, text)
    if name in {"release", "hold"}:
        return await _act(server, name, identifiers, arguments, peer)
    answers = await _ask(server, "why", identifiers=identifiers, request_id=request_id)
    requests, held = ([one for answer in answers for one in answer[part]] for part in ("requests", "held"))
    if not held and (name == "holds" or not requests):
        what = f"no request {request_id!r:.200}" if request_id else f"{text!r:.200} is not held, and no request of it"
        hint = "; to ask about a client, use --identifier" if request_id else ""
        raise HeadgateError(f"{what} is among the last {_MAX_RECENT} of each process{hint}")
    shown = {"requests": sorted(requests, key=lambda one: -one["received"])[:_MAX_SHOWN]} if name == "why" else {}
    held.sort(key=lambda one: one["by"] == "an operator")  # last, since a worker that was replaced does not know that
    return shown | {"held": [*{(one["domain"], one["identifier"]): one for one in held}.values()]}


async def _act(server: Server, name: str, identifiers: list[bytes], arguments: Mapping[str, str], peer: str) -> Any:
    """Hold or release a client."""
    text, more, noun = arguments["identifier"], {}, "holds"
    done = text if text.startswith("sha256:") else identifier_digest(identifiers[0])
    if name == "hold":
        more = {"seconds": _seconds(arguments.get("seconds", ""))}
        identifiers = identifiers[:1] if _is_address(done) else identifiers
        done, noun = f"{done} for {more['seconds']:g} s", "domains"
    count = max(await _ask(server, name, identifiers=identifiers, **more))
    log(f"ctl: {name} {done}, {noun}: {count}, by {peer}")
    if not count:
        raise HeadgateError(f"{done} was not held; its requests are forgotten{server.scope(name)}")
    return {"done": f"{name} {done}, {noun}: {count}{server.scope(name)}"}


async def _ask(server: Server, name: str, **arguments: Any) -> list[Any]:
    answers = await server.ask(name, arguments)
    silent = answers.count(None)
    if silent == len(answers):
        raise HeadgateError("this server does not answer that: ask a gate or a master")
    if silent:
        raise HeadgateError(f"{silent} of {len(answers)} processes did not answer, the others did; try again")
    return answers


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 < float(text.replace("_", "x")) <= _MAX_SECONDS:  # "5_0" would be 50
            return float(text)
    raise ConfigurationError(f"seconds must be a number of up to {_MAX_SECONDS:.0f}, got {text!r:.80}")


async def _identifiers(server: Server, text: str) -> list[bytes]:
    """Return the identifiers that a text can mean, the likeliest first. Raises `ConfigurationError` for none."""
    fail_if(not 0 < len(text.encode()) <= MAX_CONTROL_FRAME, "an identifier has 1 to 255 bytes")
    found = [*dict.fromkeys(chain.from_iterable(await _ask(server, "find", text=text)))]
    is_network = (
        "/" in text and _is_address(text) and str(ipaddress.ip_network(text, strict=False)).encode() != found[0]
    )
    fail_if(is_network, f"{text} is a network; name one client, or use gate.deny for a network")
    return found


def _is_address(text: str) -> bool:
    with suppress(ValueError):
        return bool(ipaddress.ip_network(text, strict=False))
    return False
