"""A sidecar: a gatekeeper beside nginx or HAProxy, linked to masters elsewhere, that passes holds to its server."""

import asyncio
import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from prometheus_client.core import Metric

from headgate.config import Configuration, DomainSection, domain_changes
from headgate.config.toml_reader import key_file_warnings
from headgate.config.tree import Sidecar, keep_keys, restart_note
from headgate.errors import ConfigurationError, fail_if, naming
from headgate.http.conditions import as_tuple
from headgate.limit import DelayUntil, Domain, Gatekeeper
from headgate.limit.gatekeeper import spacing
from headgate.link import GatekeeperLink
from headgate.link.curve import ClientKeys, keys_of_masters, read_client_keys
from headgate.observe import LinkedMasterState, SidecarState, sidecar_metrics
from headgate.observe.metrics import read_counters
from headgate.observe.state import identifier_digest
from headgate.origin import parse_identify
from headgate.origin.sidecar.data_plane import DataPlane, SidecarCounters
from headgate.runtime.admin import admin_url, start_admin
from headgate.runtime.gatekeeping import (
    GATEKEEPER_GROUPS,
    build_agents,
    domain_state,
    forget_expired,
    gatekeeper_counters,
    longest_holds,
    new_rejections,
    report_short_holds,
    wait_for_masters,
)
from headgate.runtime.lifecycle import Backend, ReadConfiguration, Server
from headgate.runtime.log import configure_log, log, write_line
from headgate.runtime.master_reports import MasterReports

SIDECAR_GROUPS: Final = (*GATEKEEPER_GROUPS, ("sidecar", SidecarCounters))
"""The groups of counters of a sidecar."""
_PLANES: Final = {"nginx_lua": "NginxLua", "auth_request": "AuthRequest", "haproxy": "HAProxy"}
"""The classes of the data planes by the keys of their sockets, which are also the names of their modules."""
_RESTART_KEYS: Final = tuple(f"sidecar.{name}" for name in ("master", "curve_key", "curve_server", "shard", "admin"))
"""Keys that only a restart can change."""


class Composition(NamedTuple):
    """What decides on requests, built from the configuration."""

    settings: Sidecar
    domains: tuple[Domain, ...]
    gatekeeper: Gatekeeper
    plane: DataPlane


class SidecarBackend(Backend):
    """The gatekeeper and the data plane in force; they obey the controls that `link` receives."""

    def __init__(self, composed: Composition, link: GatekeeperLink) -> None:
        self.composed = composed
        """The composition in force."""
        self._link = link
        self._is_started = False
        link.attach(self)

    async def start(self) -> None:
        await self.composed.plane.start()
        self._is_started = True

    async def close(self) -> None:
        self._is_started = False
        await self.composed.plane.close()

    def unready(self) -> str:
        if not any(master.is_up for master in self._link.connections):
            return "no master is connected"
        return self.composed.plane.unready()

    def obey(self, control: DelayUntil, /, *, now: float) -> None:
        """Hold an identifier; pass the hold on if it has begun or was extended."""
        gatekeeper, domain, identifier = self.composed.gatekeeper, control.domain, control.identifier
        before = gatekeeper.held(domain, identifier, now=now)
        gatekeeper.obey(control, now=now)
        release = gatekeeper.held(domain, identifier, now=now)
        if release > before and self._is_started:
            self.composed.plane.hold(DelayUntil(domain, identifier, release), now=now)

    async def replace(self, composed: Composition) -> None:
        """Put another composition in force; the server of the data plane is not limited for a moment.

        If the data plane cannot be started, raises `ConfigurationError`, and none is.
        """
        await self.close()
        composed.plane.totals = self.composed.plane.totals
        composed.gatekeeper.adopt(self.composed.gatekeeper, composed.settings.domains)
        self.composed = composed
        await self.start()


class SidecarServer(Server):
    """A sidecar in its life-cycle. It has nothing to drain: its server does not depend on it."""

    def __init__(self, read: ReadConfiguration) -> None:
        super().__init__()
        self._read = read
        self._tree, _ = read()
        require_sidecar(self._tree)
        self._backend: SidecarBackend

    async def start(self) -> None:
        configure_log(self._tree.log)
        settings = self._tree.sidecar
        link = self._link = GatekeeperLink(
            settings.masters,
            settings.domains,
            shard=settings.shard,
            keys=read_keys(self._tree),
            log=log,
        )
        self.closing.callback(link.close)
        backend = self.backend = self._backend = SidecarBackend(compose(self._tree, link, log), link)
        self.closing.push_async_callback(backend.close)
        await start_admin(self, settings.admin, self._tree.admin)
        link.start(asyncio.get_running_loop())
        await backend.start()
        await wait_for_masters(link)
        reports = MasterReports(lambda: link.connections, log)
        short_holds = report_short_holds("sidecar.max_hold", self._short_limit, log)
        for work in (forget_expired(lambda: backend.composed.gatekeeper), reports.run(), short_holds):
            self.start_task(work)

    def announce(self) -> None:
        settings = self._tree.sidecar
        for warning in key_file_warnings(settings.curve_key):
            log(warning)
        masters, domains = ",".join(settings.masters), len(settings.domains)
        log(f"server {server_name(settings)} domains {domains} masters {masters} admin {admin_url(self)}")
        # Scripts read the path from this line, so it contains nothing else.
        write_line(f"ready {socket_path(settings)}")

    async def reload(self) -> None:
        tree, file = self._read()
        configure_log(tree.log)
        if file is None:
            log("nothing to reload: started without a configuration file")
            return
        rest = restart_note(self._tree, tree, _RESTART_KEYS)
        tree = keep_keys(self._tree, tree, _RESTART_KEYS)
        changes = domain_changes(read_sections(self._tree), read_sections(tree))
        if _parts(tree) != _parts(self._tree):
            await self._replace(tree)
        log(f"{file} read again{changes}{rest}")

    async def _replace(self, tree: Configuration) -> None:
        """Put another configuration in force; raises `ConfigurationError`, and changes nothing, if it is invalid."""
        composed = compose(tree, self._link, log)
        try:
            await self._backend.replace(composed)
        except ConfigurationError as error:
            try:
                await self._backend.replace(compose(self._tree, self._link, log))
            except ConfigurationError:
                self.fail(error)
            raise
        self._link.set_domains(tree.sidecar.domains)
        self._tree = tree

    def _short_limit(self) -> float | None:
        """Return `sidecar.max_hold` if it has shortened a hold, otherwise None."""
        return self._tree.sidecar.max_hold if self._backend.composed.gatekeeper.shortened else None

    async def state(self, *, whole: bool) -> SidecarState:
        """Return the state of the gatekeeper and the data plane."""
        settings, domains, gatekeeper, plane = self._backend.composed
        # An address is shown, the value of a header as a digest: the server may identify clients by a secret.
        held = {
            domain.name: await longest_holds(gatekeeper, domain.name, identifier_digest)
            for domain in (domains if whole else ())
        }
        return SidecarState(
            server=server_name(settings),
            socket=socket_path(settings),
            domains=tuple(domain_state(gatekeeper, domain, held.get(domain.name, ())) for domain in domains),
            masters=tuple(LinkedMasterState(master.address, master.is_up) for master in self._link.connections),
            details=plane.details(),
            started=self.started,
            counters=gatekeeper_counters(gatekeeper, self._link) | read_counters(("sidecar", plane.totals)),
        )

    def metrics(self, state: SidecarState) -> Iterator[Metric]:
        """Make the metrics of a sidecar."""
        return sidecar_metrics(state, SIDECAR_GROUPS)


def _key(settings: Sidecar) -> str:
    """Return the key of the socket that is set; empty if none is."""
    return next((key for key in _PLANES if getattr(settings, key)), "")


def server_name(settings: Sidecar) -> str:
    """Return the name of the kind of server, as its flag has it: nginx-lua, auth-request or haproxy."""
    return _key(settings).replace("_", "-")


def socket_path(settings: Sidecar) -> str:
    """Return the path of the socket between the sidecar and its server."""
    return str(getattr(settings, _key(settings)))


def require_sidecar(tree: Configuration) -> None:
    """Raise `ConfigurationError` without a master, a domain or a kind of server."""
    settings = tree.sidecar
    fail_if(not settings.masters, "no master: add --master 10.0.0.5:10004, or sidecar.master to the configuration")
    fail_if(not settings.domains, "no domain: add --domain NAME, or sidecar.domain to the configuration")
    fail_if(
        not _key(settings),
        "no server: add --nginx-lua SOCKET, --auth-request SOCKET or --haproxy SOCKET, or one of these keys to "
        "[sidecar] of the configuration",
    )


def check_sidecar(tree: Configuration) -> None:
    """Check all that can be checked without a socket. Raises `ConfigurationError`."""
    compose(tree, None, lambda _message: None)
    read_keys(tree)


def read_keys(tree: Configuration) -> Sequence[ClientKeys | None]:
    """Return the keys for each master. Raises `ConfigurationError` for an invalid file or number of keys."""
    settings = tree.sidecar
    keys = read_client_keys(settings.curve_key, as_tuple(settings.curve_server), "sidecar")
    return keys_of_masters(keys, len(settings.masters))


def read_sections(tree: Configuration) -> list[DomainSection]:
    """Return the sections of the file for the domains of a sidecar."""
    return [section for section in tree.domain if section.name in tree.sidecar.domains]


def _parts(tree: Configuration) -> tuple[object, ...]:
    """Return what a reload compares."""
    return tree.sidecar, read_sections(tree), tree.web_bot_auth


def read_domains(tree: Configuration) -> tuple[Domain, ...]:
    """Return the domains of a sidecar, with the rules that the file has for them."""
    known = {section.name: section.domain() for section in read_sections(tree)}
    return tuple(known.get(name) or Domain(name) for name in tree.sidecar.domains)


def compose(tree: Configuration, link: GatekeeperLink | None, log: Callable[[str], None]) -> Composition:
    """Build the gatekeeper and the data plane; opens no socket. Raises `ConfigurationError`."""
    require_sidecar(tree)
    settings, domains = tree.sidecar, read_domains(tree)
    with naming("sidecar.identify"):
        parse_identify(settings.identify)
    gatekeeper = Gatekeeper(
        link.account if link is not None else None,
        max_delay=settings.max_delay,
        max_delayed=settings.max_delayed,
        spacing=spacing(domains),
        max_hold=settings.max_hold,
    )
    plane = _data_plane(_key(settings))(
        gatekeeper=gatekeeper,
        rejections=new_rejections(read_sections(tree), domains, status=settings.rejection_status),
        settings=settings,
        domains=settings.domains,
        log=log,
    )
    plane.agents = build_agents(tree)
    return Composition(settings, domains, gatekeeper, plane)


def _data_plane(key: str) -> type[DataPlane]:
    """Import the data plane for the key of its socket: a process needs only one."""
    plane: type[DataPlane] = getattr(importlib.import_module(f"headgate.origin.sidecar.{key}"), _PLANES[key])
    return plane
