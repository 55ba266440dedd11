"""nginx without Lua while its sidecar, the master or nginx itself is killed, stopped or restarted."""

import math
import shutil
import signal
import time
from contextlib import ExitStack

import pytest

from headgate.http.date import parse_http_date
from tests.e2e.auth_request_setup import System

pytestmark = pytest.mark.needs("nginx")

RULE = "1/h burst 3"


@pytest.fixture
def system(tmp_path):
    """Make a system with a rule; it ends with the test."""
    with ExitStack() as stack:
        yield lambda rule=RULE, *options, **more: System(stack, tmp_path, rule, *options, **more)


def test_a_killed_sidecar_leaves_its_rejections_and_no_flood_of_errors(system):
    """Holds stay in force until their time, at most a second more; everything else passes."""
    running = system(
        "1/6s burst 1", "--identify", "header:X-Client", "--max-delay", "0.5", workers="worker_processes 1;"
    )
    running.until_rejected(X_Client="held")
    release = running.held("held")
    running.sidecar.end(signal.SIGKILL)
    before = time.monotonic()
    assert running.nginx.statuses(60, X_Client="other") == {200: 60}
    statuses = []
    while (now := time.time()) < math.ceil(release) + 1:
        answer = running.nginx.get(X_Client="held")
        statuses.append(answer.status)
        if answer.status == 503:
            assert now < math.ceil(release)
            assert parse_http_date(answer.headers["Retry-After"].encode()) == math.ceil(release)
            assert answer.headers["RateLimit"] is None
            assert answer.body == b"Too many requests.\n"
        else:
            assert time.time() >= release
    assert set(statuses) == {200, 503}
    assert running.nginx.statuses(10) == {200: 10}
    # Each second one request tries the sidecar, and nginx writes a line.
    assert len(running.nginx.errors()) <= time.monotonic() - before + 2


def test_a_new_sidecar_has_the_holds_of_the_master_and_its_accounting_resumes(system):
    running = system(RULE)
    running.until_rejected()
    running.sidecar.end(signal.SIGKILL)
    assert running.nginx.get().status == 503
    running.start_sidecar()
    running.sidecar.until(lambda: running.held("127.0.0.1"), "hold")
    assert running.nginx.get().status == 503
    running.sidecar.until(lambda: running.nginx.get() and running.sidecar.totals("api")[2], "accounting")


def test_a_stopped_sidecar_leaves_its_rejections_and_is_asked_again(system):
    """The first requests wait for the timeout; after that, one in each second."""
    running = system(RULE, "--identify", "header:X-Client")
    running.until_rejected(X_Client="held")
    running.sidecar.process.send_signal(signal.SIGSTOP)
    assert running.nginx.statuses(300, X_Client="free") == {200: 300}
    assert running.nginx.statuses(5, X_Client="held") == {503: 5}
    running.sidecar.process.send_signal(signal.SIGCONT)
    running.until_rejected(X_Client="free")
    assert running.counters()["malformed"] == 0


def test_holds_outlast_a_master(system):
    running = system(RULE, "--identify", "header:X-Client")
    running.until_rejected(X_Client="held")
    running.master.end(signal.SIGKILL)
    assert running.nginx.statuses(20, X_Client="other") == {200: 20}
    assert running.nginx.statuses(5, X_Client="held") == {503: 5}
    running.start_master()
    running.until_rejected(X_Client="third")


def test_reload_and_restart_of_nginx_keep_holds_even_without_a_sidecar(system):
    running = system(RULE)
    running.until_rejected()
    running.nginx.reload()
    assert running.nginx.statuses(20) == {503: 20}
    running.nginx.stop(signal.SIGKILL)
    running.nginx.start()
    assert running.nginx.statuses(5) == {503: 5}
    running.sidecar.end(signal.SIGKILL)
    running.nginx.stop(signal.SIGKILL)
    running.nginx.start()
    assert running.nginx.statuses(5) == {503: 5}


def test_a_folder_that_cannot_be_written_leaves_rejections_complete(system):
    """As on a full disk: nginx would close the connection of a client whose rejection it cannot store."""
    running = system("1/h burst 1", "--identify", "header:X-Client")
    running.nginx.get(X_Client="first")
    shutil.rmtree(running.folder / "headgate-holds")
    for client in ("second", "third"):
        assert running.nginx.get(X_Client=client).status == 200
        running.sidecar.until(lambda: running.held(client), "hold")  # noqa: B023  # called at once
        answer = running.nginx.get(X_Client=client)
        assert answer.status == 503
        assert int(answer.headers["Retry-After"]) > 3_000
        assert answer.headers["RateLimit"] is not None
        assert running.nginx.statuses(5, X_Client=client) == {503: 5}
    assert any("[crit]" in line for line in running.nginx.errors())
