import asyncio
import time

import msgspec
import pytest

from headgate.config import parse
from headgate.errors import ConfigurationError
from headgate.limit import DelayUntil
from headgate.observe import SidecarState, sidecar_metrics
from headgate.observe.metrics import read_counters
from headgate.origin.sidecar.data_plane import SidecarCounters
from headgate.release import Status
from headgate.runtime import gatekeeping, master_reports
from headgate.runtime import sidecar as module
from headgate.runtime.lifecycle import LifecyclePhase
from headgate.runtime.sidecar import SidecarServer, check_sidecar
from tests.unit.runtime import serving
from tests.unit.runtime.serving import reading, reload, until

PLANES = []
NEW_DATA_PLANE = module._data_plane


class Plane:
    """A data plane that records what it was told."""

    def __init__(self, *, gatekeeper, rejections, settings, domains, log, clock=time.time):
        self.gatekeeper, self.settings, self.domains = gatekeeper, settings, domains
        self.rejections = rejections
        self.totals = SidecarCounters(connections=3)
        self.held = []
        self.events = []
        self.reason = ""
        PLANES.append(self)

    async def start(self):
        self.events.append("start")
        if self.settings.nginx_lua == "unavailable":
            raise ConfigurationError("cannot listen")

    def hold(self, control, *, now):
        self.held.append((control.identifier, control.release))

    def unready(self):
        return self.reason

    def details(self):
        return {"workers": 2}

    async def close(self):
        self.events.append("close")


@pytest.fixture(autouse=True)
def planes(monkeypatch):
    PLANES.clear()
    monkeypatch.setattr(module, "_data_plane", lambda key: Plane)
    return PLANES


def text(more="", *, masters='"127.0.0.1:9"', domain='"api"', socket="/run/s", sections=""):
    return f'[sidecar]\nmaster = {masters}\ndomain = {domain}\nnginx_lua = "{socket}"\n{more}\n{sections}'


def running(read):
    return serving.running(lambda: SidecarServer(read))


def run(read, steps=None):
    return serving.run(lambda: SidecarServer(read), steps)


def backend_of(lifecycle):
    return lifecycle._server.backend


def test_sidecar_without_a_running_master_is_ready_and_its_last_line_has_the_socket_only(planes):
    about, ready = run(reading(text(masters='["127.0.0.1:9", "tcp://127.0.0.1:11"]', domain='["a", "b"]')))
    assert about == "headgate: server nginx-lua domains 2 masters 127.0.0.1:9,tcp://127.0.0.1:11 admin none"
    assert ready == "ready /run/s"
    assert planes[0].events == ["start", "close"]


async def test_unready_without_a_master_or_as_the_data_plane_says(planes, monkeypatch):
    async with running(reading(text())) as (lifecycle, _):
        assert lifecycle.unready() == "no master is connected"
        monkeypatch.setattr(type(next(iter(backend_of(lifecycle)._link.connections))), "is_up", True)
        assert lifecycle.unready() == ""
        planes[0].reason = "HAProxy is not running"
        assert lifecycle.unready() == "HAProxy is not running"


async def test_hold_is_passed_on_when_it_begins_or_is_extended_limited_to_the_maximum(planes):
    async with running(reading(text("max_hold = 60"))) as (lifecycle, _):
        for release in (90.0, 110.0, 105.0, 110.0, 120.0, 900.0):
            backend_of(lifecycle).obey(DelayUntil("api", b"alice", release), now=100.0)
        assert planes[0].held == [(b"alice", 110.0), (b"alice", 120.0), (b"alice", 160.0)]
        assert backend_of(lifecycle).composed.gatekeeper.held("api", b"alice", now=100.0) == 160.0


def test_rules_of_the_file_give_the_spacing_and_the_policy(planes):
    sections = '[[domain]]\nname = "api"\nrules = ["4/s burst 8"]\n[[domain]]\nname = "other"\nrules = ["1/s"]'
    run(reading(text("max_delay = 2\nrejection_status = 429", domain='["api", "bare"]', sections=sections)))
    (plane,) = planes
    assert (plane.gatekeeper.spacing, plane.gatekeeper.max_delay) == ({"api": 0.25}, 2.0)
    plane.gatekeeper.obey(DelayUntil("api", b"alice", 200.0))
    response = plane.rejections(plane.gatekeeper.admit("api", b"alice", now=100.0), now=100.0)
    assert response.status == 429
    assert (b"ratelimit-policy", b'"api";q=8;w=2') in response.fields


class TestReload:
    async def test_another_composition_is_put_in_force_and_keeps_holds_and_totals(self, planes):
        async with running(reading(text("max_delay = 1"), text("max_delay = 2", domain='["api", "new"]'))) as (
            lifecycle,
            messages,
        ):
            backend = backend_of(lifecycle)
            now = time.time()
            backend.obey(DelayUntil("api", b"alice", now + 60.0), now=now)
            backend.composed.gatekeeper.admit("api", b"alice", now=now)
            await reload(lifecycle)
            old, new = planes
            assert (old.events, new.events) == (["start", "close"], ["start"])
            assert new.domains == ("api", "new")
            assert new.gatekeeper is backend.composed.gatekeeper is not old.gatekeeper
            assert new.gatekeeper.held("api", b"alice", now=now) == now + 60.0
            assert new.gatekeeper.totals["api"].rejected == 1
            assert (await lifecycle._server.state(whole=False)).counters["sidecar_connections"] == 3
            assert set(lifecycle._server._link._topics) == {"api", "new"}
            backend.obey(DelayUntil("new", b"bob", now + 5.0), now=now)
            assert new.held == [(b"bob", now + 5.0)]
        assert messages[-1] == "headgate: headgate.toml read again"

    async def test_change_that_does_not_concern_the_sidecar_leaves_the_data_plane_alone(self, planes):
        other = text(sections='[[domain]]\nname = "other"\nrules = ["1/s"]')
        async with running(reading(text(), other)) as (lifecycle, _):
            await reload(lifecycle)
            assert [plane.events for plane in planes] == [["start"]]

    async def test_keys_that_need_a_restart_are_named_and_stay(self, planes):
        changed = text('admin = "127.0.0.1:0"', masters='"127.0.0.1:11"')
        async with running(reading(text(), changed)) as (lifecycle, messages):
            await reload(lifecycle)
            assert len(planes) == 1
        assert messages[-1] == (
            "headgate: headgate.toml read again; a restart is needed for sidecar.master, sidecar.admin"
        )

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            (text(domain="[]"), "no domain: add --domain NAME, or sidecar.domain to the configuration"),
            (text('identify = "cookie"'), "sidecar.identify: invalid identify 'cookie'"),
        ],
    )
    async def test_invalid_file_changes_nothing(self, planes, changed, message):
        async with running(reading(text(), changed)) as (lifecycle, messages):
            await reload(lifecycle)
            assert planes[0].events == ["start"]
        assert messages[-1].startswith(f"headgate: error: {message}")
        assert messages[-1].endswith("; the configuration in force stays as it is")

    async def test_data_plane_that_cannot_start_is_replaced_by_one_of_the_old_configuration(self, planes):
        async with running(reading(text(), text(socket="unavailable"))) as (lifecycle, messages):
            now = time.time()
            backend_of(lifecycle).obey(DelayUntil("api", b"alice", now + 60.0), now=now)
            await reload(lifecycle)
            assert [plane.events for plane in planes] == [["start", "close"], ["start", "close"], ["start"]]
            assert planes[2].settings == planes[0].settings
            assert planes[2].gatekeeper.held("api", b"alice", now=now) == now + 60.0
        assert messages[-1] == "headgate: error: cannot listen; the configuration in force stays as it is"

    def test_sidecar_ends_if_neither_configuration_can_be_started(self, planes):
        async def steps(lifecycle):
            lifecycle._server._tree = parse(text(socket="unavailable"))
            lifecycle.reload()
            await until(lambda: lifecycle.phase is LifecyclePhase.STOPPED)

        with pytest.raises(ConfigurationError, match="cannot listen"):
            run(reading(text(), text("max_delay = 1", socket="unavailable")), steps)


def test_start_that_fails_closes_the_data_plane(planes):
    with pytest.raises(ConfigurationError, match="cannot listen"):
        run(reading(text(socket="unavailable")))
    assert planes[0].events == ["start", "close"]


async def test_state(planes):
    async with running(reading(text())) as (lifecycle, _):
        backend = backend_of(lifecycle)
        now = time.time()
        for identifier in (b"192.0.2.1", b"secret"):
            backend.obey(DelayUntil("api", identifier, now + 60.0), now=now)
        backend.composed.gatekeeper.admit("api", b"192.0.2.1", now=now)
        state = await lifecycle._server.state(whole=True)
        assert isinstance(state, SidecarState)
        assert (state.server, state.socket, state.details) == ("nginx-lua", "/run/s", {"workers": 2})
        assert [(master.address, master.up) for master in state.masters] == [("127.0.0.1:9", False)]
        (domain,) = state.domains
        assert (domain.name, domain.rejected) == ("api", 1)
        assert {one.identifier for one in domain.held} == {"192.0.2.1", "sha256:2bb80d537b1da3e3"}
        assert state.counters["sidecar_connections"] == 3
        assert state.counters["link_sent"] == 0
        assert (await lifecycle._server.state(whole=False)).domains[0].held == ()


async def test_holds_that_have_ended_are_forgotten(monkeypatch, planes):
    monkeypatch.setattr(gatekeeping, "_FORGET_INTERVAL", 0.001)
    async with running(reading(text())) as (lifecycle, _):
        backend = backend_of(lifecycle)
        now = time.time()
        backend.obey(DelayUntil("api", b"alice", now + 0.01), now=now)
        await until(lambda: not backend.composed.gatekeeper._tables.size)


async def test_shortened_hold_and_missing_master_are_logged(monkeypatch):
    monkeypatch.setattr(gatekeeping, "_REPORT_INTERVAL", 0.001)
    monkeypatch.setattr(master_reports, "_START_TIMEOUT", 0.0)
    async with running(reading(text("max_hold = 60"))) as (lifecycle, messages):
        now = time.time()
        backend_of(lifecycle).obey(DelayUntil("api", b"alice", now + 90.0), now=now)
        await asyncio.sleep(0.05)
    assert any(message.startswith("headgate: warning: master 127.0.0.1:9 is not connected yet") for message in messages)
    expected = "headgate: warning: a master holds a client for longer than sidecar.max_hold, 60 s"
    assert [message.startswith(expected) for message in messages].count(True) == 1


def test_valid_configuration_passes_the_check_and_starts_nothing(planes):
    check_sidecar(parse(text()))
    assert planes[0].events == []


async def test_verdicts_of_the_data_plane_go_to_the_link(planes):
    async with running(reading(text())) as (lifecycle, _):
        accounting = planes[0].gatekeeper.admit("api", b"alice", now=100.0)
        assert accounting.status is Status.ACCEPTED
        assert list(lifecycle._server._link._waiting) == [accounting]


@pytest.mark.parametrize("server", ['nginx_lua = "/s"', 'auth_request = "/s"', 'haproxy = "/s"'])
def test_each_data_plane_is_built_and_its_counters_are_described(monkeypatch, server):
    monkeypatch.setattr(module, "_data_plane", NEW_DATA_PLANE)
    tree = parse(f'[sidecar]\nmaster = "a:1"\ndomain = "api"\n{server}\n')
    plane = module.compose(tree, None, print).plane
    counters = read_counters(("sidecar", plane.totals))
    state = SidecarState(module.server_name(tree.sidecar), counters=counters)
    assert list(sidecar_metrics(state, module.SIDECAR_GROUPS))
    assert not any(counters.pop("sidecar_failed").values())
    assert set(counters.values()) == {0}
    assert msgspec.json.decode(msgspec.json.encode(plane.details())) == plane.details()
