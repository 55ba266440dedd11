"""A gate's server in this process: its admin listener, what it reports, its reloads; and those of its supervisor."""

import asyncio
import gc
import threading

import pytest
from msgspec.structs import replace

from headgate.config.tree import LogSection
from headgate.errors import ConfigurationError
from headgate.link.curve import new_key_pair
from headgate.observe import DomainState, GateState
from headgate.runtime import gate_server as module
from headgate.runtime.gate_server import GateServer, GateWorkers
from tests.unit.runtime import serving
from tests.unit.runtime.gate.test_process import configuration, record_threads, tree
from tests.unit.runtime.serving import reload


def options(*trees, **more):
    """Return what makes a gate with these configurations, one for each time it is read; the last is read again."""
    left = list(trees)
    return lambda: GateServer(lambda: (left.pop(0) if len(left) > 1 else left[0], "gate.toml"), **more)


def configured(*, admin="", **keys):
    gate = tree()
    return replace(gate, gate=replace(gate.gate, listen="127.0.0.1:0", admin=admin, **keys))


def run(given, steps=None):
    """Run a gate; return the messages that it logged."""
    try:
        return serving.run(given, steps)
    finally:
        gc.unfreeze()


@pytest.fixture
def _admin_address_in_use(monkeypatch):
    async def refuse(*_arguments, **_keywords):
        raise ConfigurationError("127.0.0.1:8090 is taken")

    monkeypatch.setattr(module, "start_admin", refuse)


def test_secret_key_that_every_user_can_read_is_logged(tmp_path):
    secret = tmp_path / "secret.key"
    secret.write_bytes(new_key_pair().secret_file())
    secret.chmod(0o644)
    server = new_key_pair().public.decode()
    messages = run(options(configured(master="tcp://127.0.0.1:9", curve_key=str(secret), curve_server=server)))
    assert messages[0].startswith(f"headgate: warning: {secret}: every user of this machine can read this secret key")


@pytest.mark.usefixtures("_admin_address_in_use")
class TestAdminAddressInUse:
    def test_default_address_is_done_without(self):
        message, *_ = run(options(configured(admin="127.0.0.1:8090")))
        assert message == (
            "headgate: 127.0.0.1:8090 is in use; starting without admin listener (choose another with --admin)"
        )

    def test_default_address_that_was_asked_for_is_an_error(self):
        with pytest.raises(ConfigurationError, match="is taken"):
            run(options(configured(admin="127.0.0.1:8090"), require_admin=True))

    def test_other_address_is_an_error(self):
        with pytest.raises(ConfigurationError, match="is taken"):
            run(options(configured(admin="127.0.0.1:8091")))


def test_reload_names_the_file_and_the_keys_that_replace_the_gate_or_need_a_restart():
    for other in (configured(loop="uvloop"), configured(loop="uvloop", max_delay=9)):
        messages = run(options(configured(), other), reload)
        assert messages[2:] == ["headgate: gate.toml read again; a restart is needed for gate.loop"]
    messages = run(options(configured(), configured(watch_files=True)), reload)
    assert messages[-1].endswith("read again; a new gate in this process has taken over, because of gate.watch_files")
    messages = run(lambda: GateServer(lambda: (configured(), None)), reload)
    assert messages[-1] == "headgate: nothing to reload: started without a configuration file"


def test_reload_checks_the_files_of_the_workers():
    workers = GateWorkers(configuration(tree()))
    with pytest.raises(ConfigurationError, match=r"log\.access: ./none/log"):
        asyncio.run(workers.reload(configuration(replace(tree("2/s"), log=LogSection(access="/none/log")))))
    assert workers.configuration(0).configuration.tree == tree()


def test_reload_checks_bundles_in_a_thread(monkeypatch):
    workers = GateWorkers(configuration(tree()))
    threads = record_threads(monkeypatch, module, "check_composition")
    asyncio.run(workers.reload(configuration(tree("2/s"))))
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()
    assert workers.configuration(0).configuration.tree.domain[0].rules == ("2/s",)


def test_totals_of_a_worker_that_has_ended_are_kept():
    class Ended:
        last_state = GateState((DomainState("a", accepted=2),), delayed_now=1, connections={"idle": 3})

    workers = GateWorkers(configuration(tree()))
    workers.on_worker_exit(Ended)
    workers.on_worker_exit(Ended)
    state = asyncio.run(workers.state(whole=False))
    assert (state.domains[0].accepted, state.delayed_now, state.connections, state.workers) == (4, 0, {}, 0)


def test_one_worker_reports_about_masters_elsewhere():
    workers = GateWorkers(configuration(configured(master="tcp://127.0.0.1:9", workers=3)))
    assert [workers.configuration(number).configuration.number for number in range(3)] == [0, 1, 2]
