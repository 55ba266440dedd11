"""A router between gatekeepers and several masters, as a server process."""

import asyncio
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

from prometheus_client.core import Metric

from headgate.config import Configuration
from headgate.config.tree import Router, restart_note
from headgate.errors import fail_if
from headgate.http.conditions import as_tuple
from headgate.limit.messages import topic
from headgate.link import RouterLink
from headgate.link.curve import ClientKeys, ServerKeys, keys_of_masters, read_client_keys, read_server_keys
from headgate.link.router import RouterCounters
from headgate.observe import RoutedDomain, RoutedMasterState, RouterState, read_counters, router_metrics
from headgate.observe.feed import MAX_ROWS, Minute, Sample
from headgate.observe.state import identifier_text
from headgate.runtime.admin import admin_url, start_admin
from headgate.runtime.bus_protection import bus_address, bus_warnings
from headgate.runtime.lifecycle import Backend, ReadConfiguration, Server
from headgate.runtime.log import LogCounters, configure_log, log, log_counters, write_line
from headgate.runtime.master_reports import MasterReports

ROUTER_GROUPS: Final = (("router", RouterCounters), ("log", LogCounters))
"""The groups of counters of a router."""
_RELOADED_KEYS: Final = frozenset({"curve_allow", "master"})
_RESTART_KEYS: Final = tuple(f"router.{name}" for name in Router.__struct_fields__ if name not in _RELOADED_KEYS)
"""Keys that only a restart can change."""


class _RouterBackend(Backend):
    """What accepts gatekeepers: unready as long as no master is connected."""

    def __init__(self, link: RouterLink) -> None:
        self._link = link

    def unready(self) -> str:
        return "" if self._link.is_up else "no master is connected"


class RouterServer(Server):
    """A router in its life-cycle. It has nothing to drain: gatekeepers reconnect by themselves."""

    kind = "router"

    def __init__(self, read: ReadConfiguration) -> None:
        super().__init__()
        self._read = read
        self._tree, _ = read()

    async def start(self) -> None:
        configure_log(self._tree.log)
        settings = self._tree.router
        keys, master_keys = read_keys(self._tree)
        link = self._link = RouterLink(
            bus_address(settings),
            settings.masters,
            keys=keys,
            master_keys=master_keys,
            insecure=settings.insecure,
            log=log,
        )
        self.closing.callback(link.close)
        self.backend = _RouterBackend(link)
        await start_admin(self, settings.admin, self._tree.admin)
        link.start(asyncio.get_running_loop())
        reports = MasterReports(lambda: list(link.masters.values()), log)
        self.start_task(reports.run())

    def announce(self) -> None:
        for warning in bus_warnings(self._tree.router):
            log(warning)
        accounting, control = self._link.endpoints
        masters = ",".join(self._tree.router.masters)
        log(f"masters {masters} control {control} admin {admin_url(self)}")
        # Scripts read the address from this line, so it contains nothing else.
        write_line(f"ready {accounting}")

    async def reload(self) -> None:
        tree, file = self._read()
        configure_log(tree.log)
        new, old = tree.router, self._tree.router
        if file is None and not new.curve_allow:
            log("nothing to reload: started without a configuration file")
            return
        keys, master_keys = read_keys(tree)
        self._link.set_masters(new.masters, master_keys)
        if keys is not None and old.curve_allow:
            self._link.set_allowed_keys(keys.allowed)
        rest = restart_note(self._tree, tree, _RESTART_KEYS)
        log(f"{file or new.curve_allow} read again{rest}")

    async def state(self, *, whole: bool) -> RouterState:  # noqa: ARG002  # nothing of it takes long
        """Return the state of the router and its masters."""
        return RouterState(
            masters=tuple(
                RoutedMasterState(master.address, master.is_up, master.sent, master.dropped, master.controls)
                for master in self._link.masters.values()
            ),
            domains=tuple(
                RoutedDomain(identifier_text(topic(name)[:-1]), owner) for name, owner in self._link.owners()
            ),
            gatekeepers=self._link.gatekeepers,
            started=self.started,
            counters=read_counters(("router", self._link.counters), ("log", log_counters())),
        )

    async def samples(self, *, tables: bool) -> list[Sample]:
        """Return what the router has counted, for the dashboard."""
        link, masters = self._link, self._link.masters.values()
        rows = {one.address: [one.sent, one.controls, one.dropped] for one in masters}
        dropped = sum(link.counters.unrouted.values()) + sum(one.dropped for one in masters)
        controls = sum(one.controls for one in masters)
        counts = {"accounted": link.counters.accounted, "dropped": dropped, "controls": controls}
        gauges = {"masters": sum(one.is_up for one in masters), "gates": sum(link.gatekeepers.values())}
        return [Sample(counts, gauges, {"masters": rows} if tables else {})]

    async def overview(self, minute: Minute) -> dict[str, Any]:  # noqa: ARG002  # it has few masters
        """Return what the dashboard shows besides the rows of `minute`."""
        domains = {identifier_text(topic(name)[:-1]): owner for name, owner in self._link.owners()}
        masters = {master.address: master.is_up for master in self._link.masters.values()}
        return {"masters": masters, "gates": self._link.gatekeepers, "domains": dict(islice(domains.items(), MAX_ROWS))}

    def metrics(self, state: RouterState) -> Iterator[Metric]:
        """Make the metrics of a router."""
        return router_metrics(state, ROUTER_GROUPS)


def require_masters(tree: Configuration) -> None:
    """Raise `ConfigurationError` if the configuration lists no master."""
    fail_if(not tree.router.masters, "no master: add --master 10.0.0.5:10004, or router.master to the configuration")


def read_keys(tree: Configuration) -> tuple[ServerKeys | None, Sequence[ClientKeys | None]]:
    """Return the keys for gatekeepers, and those for each master.

    Raises `ConfigurationError` for an invalid file, another number of keys, and a key that is not used.
    """
    settings = tree.router
    servers = as_tuple(settings.curve_server)
    fail_if(
        settings.curve_key and not settings.curve_allow and not any(servers),
        "router.curve_key needs router.curve_allow (--curve-allow), the public keys of gatekeepers, or "
        "router.curve_server (--curve-server), the public key of the masters",
    )
    keys = read_server_keys(settings.curve_key if settings.curve_allow else "", settings.curve_allow, "router")
    to_masters = read_client_keys(settings.curve_key if any(servers) else "", servers, "router")
    return keys, keys_of_masters(to_masters, len(settings.masters))
