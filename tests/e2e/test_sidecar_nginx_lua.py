"""The real nginx with Lua as a gatekeeper, with its data plane in this process.

tests/e2e/test_one_limit.py and test_data_plane_faults.py run the whole system.
"""

import os
import pwd
import random
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from headgate.release import Status
from tests.e2e import nginx_setup, programs
from tests.e2e.nginx_setup import REAL_IP, Nginx, Plane

pytestmark = pytest.mark.needs("nginx-lua")

CLIENT = "192.0.2.7"
EMPTY = "location = /empty { empty_gif; }"
"""A location that answers without an origin."""


@contextmanager
def connected(
    folder: Path, *, workers: int = 2, server: str = "", options: dict[str, Any] | None = None, **settings: Any
) -> Iterator[tuple[Plane, Nginx]]:
    """Run a data plane with these settings, and an nginx whose workers are connected to it."""
    socket = folder / "headgate.sock"
    with (
        Plane(socket, **settings) as plane,
        nginx_setup.nginx(
            folder, socket, "http://127.0.0.1:1", workers=workers, server=REAL_IP + EMPTY + server, **(options or {})
        ) as nginx,
    ):
        plane.until_connected(workers)
        yield plane, nginx


def hold_until_effective(plane: Plane, nginx: Nginx, identifier: str, seconds: float) -> float:
    """Hold an address, and wait until it is rejected; returns the release."""
    release = plane.hold(identifier.encode(), seconds)
    plane.until(lambda: nginx.get("/empty", X_Address=identifier).status == 503, "rejection")
    return release


@pytest.mark.parametrize("workers", [1, 8])
def test_a_hold_is_in_force_in_every_worker_until_its_time(tmp_path: Path, workers: int) -> None:
    with connected(tmp_path, workers=workers, max_delay=0.0) as (plane, nginx):
        release = hold_until_effective(plane, nginx, CLIENT, 1.0)
        # A connection of its own for each request: they are spread over the workers.
        statuses = [nginx.get("/empty", X_Address=CLIENT).status for _ in range(8 * workers)]
        assert set(statuses) == {503} or time.time() > release
        assert nginx.get("/empty", X_Address="192.0.2.8").status == 200
        plane.until(lambda: nginx.get("/empty", X_Address=CLIENT).status == 200, "end of the hold")
        assert time.time() >= release


def test_a_delayed_request_is_released_at_its_time_and_not_earlier(tmp_path: Path) -> None:
    with connected(tmp_path, workers=1) as (plane, nginx):
        delays = 0
        while delays < 10:
            before = len(plane.verdicts)
            release = plane.hold(b"192.0.2.7", 0.1 + random.random() / 100)
            assert nginx.get("/empty", X_Address=CLIENT).status == 200
            answered = time.time()
            plane.until(lambda so_far=before: len(plane.verdicts) > so_far, "verdict")
            if plane.verdicts[-1].status is Status.DELAYED:
                delays += 1
                assert answered >= plane.verdicts[-1].release
                assert release - 1e-6 <= plane.verdicts[-1].release <= release + 0.0011


def test_a_client_that_leaves_frees_its_slot(tmp_path: Path) -> None:
    with connected(tmp_path, workers=1, max_delayed=2, max_delay=60.0) as (plane, nginx):
        plane.hold(b"192.0.2.7", 59.0)

        def ask() -> socket.socket:
            before = len(plane.verdicts)
            client = socket.create_connection(("127.0.0.1", nginx.port))
            client.sendall(b"GET /empty HTTP/1.1\r\nHost: nginx\r\nX-Address: 192.0.2.7\r\n\r\n")
            plane.until(lambda: len(plane.verdicts) > before, "verdict")
            return client

        plane.until(lambda: ask().close() or Status.DELAYED in plane.statuses(), "hold")
        waiting: list[socket.socket] = []

        def is_full() -> bool:
            waiting.append(ask())
            return plane.statuses()[-1] is Status.REJECTED

        plane.until(is_full, "rejection for want of a slot")
        for client in waiting:
            client.close()
        plane.until(lambda: ask().close() or plane.statuses()[-1] is Status.DELAYED, "free slot")


@pytest.mark.needs("curl")
@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
def test_a_delayed_request_keeps_its_body_and_a_client_may_leave(tmp_path: Path, version: str) -> None:
    size = """location = /size { client_body_buffer_size 1m; content_by_lua_block {
        ngx.req.read_body() ngx.print(#ngx.req.get_body_data())
    } }"""
    listen = {" default_server;": " http2 default_server;"} if "http2" in version else {}
    body = tmp_path / "body"
    body.write_bytes(b"x" * 200_000)
    with connected(tmp_path, workers=1, max_delayed=1, server=size, options={"replacements": listen}) as (plane, nginx):
        command = ["curl", "-s", version, "-H", "X-Address: 192.0.2.7", f"http://127.0.0.1:{nginx.port}/size"]

        def post() -> str:
            plane.hold(b"192.0.2.7", 0.5)
            command_with_body = [*command, "--data-binary", f"@{body}"]
            assert subprocess.run(command_with_body, capture_output=True, check=True).stdout == b"200000"
            plane.until(lambda: plane.verdicts, "verdict")
            return plane.verdicts[-1].status.name

        plane.until(lambda: post() == "DELAYED", "delay")
        plane.hold(b"192.0.2.7", 4.5)
        for _ in range(3):  # the only slot is free again each time
            before = len(plane.verdicts)
            client = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            plane.until(lambda so_far=before: len(plane.verdicts) > so_far, "verdict")
            client.kill()
            client.wait()
            assert plane.verdicts[-1].status in {Status.DELAYED, Status.ACCEPTED}
            time.sleep(0.05)


def test_delayed_requests_are_spaced_out_whichever_worker_they_meet(tmp_path: Path) -> None:
    with connected(tmp_path, spacing={"api": 0.05}) as (plane, nginx):
        hold = plane.hold(b"192.0.2.7", 1.0)
        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(lambda _: nginx.get("/empty", X_Address=CLIENT).status, range(24))) == {200}
        plane.until(lambda: len(plane.verdicts) == 24, "verdicts")
        releases = sorted(verdict.release for verdict in plane.verdicts if verdict.status is Status.DELAYED)
        assert len(releases) >= 8
        assert releases[0] == pytest.approx(hold, abs=0.0011)
        steps = [later - earlier for earlier, later in pairwise(releases)]
        assert min(steps) >= 0.049
        assert len([step for step in steps if step > 0.051]) <= 1, "steps are longer only where the hold had ended"


def test_settings_and_holds_stay_when_nginx_is_reloaded_without_a_sidecar(tmp_path: Path) -> None:
    with connected(tmp_path, rejection_status=429, identify="header:X-Api-Key") as (plane, nginx):
        plane.hold(b"=key", 300.0)
        plane.until(lambda: nginx.get("/empty", X_Api_Key="key").status == 429, "rejection")
        plane.run(plane.plane.close)
        workers = set(nginx.workers())
        nginx.reload()
        plane.until(lambda: nginx.workers() and not workers & set(nginx.workers()), "new workers")
        assert nginx.get("/empty", X_Api_Key="key").status == 429
        assert nginx.get("/empty", X_Api_Key="other").status == 200


def test_a_worker_without_a_connection_has_the_settings_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.origin.sidecar.nginx_lua.NginxLua.max_connections", 1)
    socket, fields = tmp_path / "headgate.sock", REAL_IP + EMPTY + "add_header X-Worker $pid always;"
    with (
        nginx_setup.nginx(tmp_path, socket, "http://127.0.0.1:1", workers=2, server=fields) as nginx,
        Plane(socket, rejection_status=429, max_delay=0.0) as plane,
    ):
        plane.until_connected(1)
        plane.hold(CLIENT.encode(), 3.0)
        plane.until(lambda: nginx.get("/empty", X_Address=CLIENT).status != 200, "rejection")
        answers = [nginx.get("/empty", X_Address=CLIENT) for _ in range(100)]
        assert {answer.status for answer in answers} == {429}
        assert len({answer.getheader("X-Worker") for answer in answers}) == 2


def test_a_full_dictionary_drops_holds_and_counts_them(tmp_path: Path) -> None:
    small = {"lua_shared_dict headgate 64m;": "lua_shared_dict headgate 64k;"}
    with connected(tmp_path, options={"replacements": small}) as (plane, nginx):
        for number in range(5_000):
            plane.hold(b"client-%d" % number, 300.0)
        plane.until(lambda: plane.plane.totals.failed["evicted"] > 0, "evictions")
        hold_until_effective(plane, nginx, CLIENT, 300.0)
        plane.until_connected()
        assert nginx.get("/empty", X_Address="192.0.2.8").status == 200
        assert "error" not in nginx.output()


def test_an_internal_redirect_is_not_another_request(tmp_path: Path) -> None:
    redirects = """
        error_page 502 /empty;
        location = /named { rewrite_by_lua_block { return } try_files /none @named; }
        location @named { empty_gif; }
    """
    with connected(tmp_path, workers=1, server=redirects) as (plane, nginx):
        paths = {"192.0.2.1": "/", "192.0.2.2": "/empty", "192.0.2.3": "/named"}
        # The status of / is that of the origin, which is not running; its content is that of /empty.
        assert [nginx.get(path, X_Address=address).status for address, path in paths.items()] == [502, 200, 200]
        nginx.get("/empty", X_Address=CLIENT)
        plane.until(lambda: plane.verdicts and plane.verdicts[-1].identifier == CLIENT.encode(), "last verdict")
        assert [verdict.identifier.decode() for verdict in plane.verdicts] == [*paths, CLIENT]


def test_nginx_works_as_an_ordinary_user_and_as_root_with_other_workers() -> None:
    if os.geteuid():
        pytest.skip("only root can start nginx as another user")
    for user in (None, "nobody"):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            folder.chmod(0o777 if user else 0o755)
            with connected(folder, options={"user": user} if user else {}) as (plane, nginx):
                owners = {Path(f"/proc/{worker}").stat().st_uid for worker in nginx.workers()}
                assert owners == {pwd.getpwnam("nobody").pw_uid}
                hold_until_effective(plane, nginx, CLIENT, 300.0)
                assert nginx.get("/", "POST", b"x" * 1_000_000).status == 502  # the origin is not running


@pytest.mark.parametrize("own", [{"identify": "header:X-Api-Key"}, {}])
def test_the_method_of_the_configuration_has_the_last_word(tmp_path: Path, own: dict[str, str]) -> None:
    with connected(tmp_path, identify="header:X-Other-Key", options=own) as (plane, nginx):
        # A worker that has this hold has the method of the data plane, too, which was sent before.
        plane.hold(b"=own" if own else b"=other", 300.0)
        plane.until(
            lambda: nginx.get("/empty", X_Api_Key="own", X_Other_Key="other").status == 503,
            "rejection of the identifier",
        )


@pytest.mark.parametrize(
    "data",
    [b"?" * 100, b"hold 1 2 99999999 ", b"settings 0 0 22 rejection 503 0 3 api\n\n", b"hold 9999999999999999 0 0 \n"],
    ids=["no record", "too long", "rejection without a form", "hold without a key"],
)
def test_a_sidecar_that_sends_wrong_records_harms_nothing(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "headgate.sock"
    with socket.socket(socket.AF_UNIX) as listener, ExitStack() as stack:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(programs.PATIENCE)
        nginx = stack.enter_context(
            nginx_setup.nginx(tmp_path, path, "http://127.0.0.1:1", workers=1, server=REAL_IP + EMPTY)
        )
        for _ in range(2):  # the worker closes the connection, and connects again
            connection, _address = listener.accept()
            with connection:
                connection.settimeout(programs.PATIENCE)
                assert connection.recv(1_000).startswith(b"hello 2 1 ")
                connection.sendall(data)
                assert nginx.get("/empty", X_Address=CLIENT).status == 200
                if data.startswith(b"hold 9"):
                    break
                received = [connection.recv(1_000) for _ in range(4)]  # nothing, or a status each second
                assert b"" in received, "the connection is still open"


@pytest.mark.parametrize("excluded", ["", "rewrite_by_lua_block { return }"], ids=["limited", "excluded"])
def test_a_location_that_asks_for_a_password_stays_closed_and_guesses_are_counted(
    tmp_path: Path, excluded: str
) -> None:
    (tmp_path / "users").write_text("user:{PLAIN}secret\n")
    password = f'auth_basic "x"; auth_basic_user_file {tmp_path}/users; empty_gif; {excluded}'
    closed = f"""
        location = /any {{ satisfy any; deny all; {password} }}
        location = /all {{ {password} }}
        location = /denied {{ deny all; empty_gif; {excluded} }}
        location = /check {{ internal; empty_gif; }}
        location = /asked {{ auth_request /check; empty_gif; {excluded} }}
    """
    statuses = {"/any": 401, "/all": 401, "/denied": 403, "/asked": 200}
    with connected(tmp_path, workers=1, server=closed) as (plane, nginx):
        assert {path: nginx.get(path, X_Address=CLIENT).status for path in statuses} == statuses
        assert nginx.get("/any", Authorization="Basic dXNlcjpzZWNyZXQ=").status == 200
        if not excluded:
            plane.until(lambda: len(plane.verdicts) >= 5, "verdicts")
            hold_until_effective(plane, nginx, CLIENT, 300.0)
            assert {nginx.get(path, X_Address=CLIENT).status for path in statuses} == {503}
        last = len(plane.verdicts)
        nginx.get("/empty", X_Address="192.0.2.9")
        plane.until(lambda: len(plane.verdicts) > last, "last verdict")
        assert not excluded or [verdict.identifier for verdict in plane.verdicts] == [b"192.0.2.9"]
        assert [verdict.identifier for verdict in plane.verdicts[:5]].count(CLIENT.encode()) == (0 if excluded else 4)


def test_a_worker_connects_again_when_all_timers_of_nginx_were_taken(tmp_path: Path) -> None:
    timers = """location = /timers { content_by_lua_block {
        for _ = 1, 40 do ngx.timer.at(1.5, function() end) end
        ngx.print("made")
    } }"""
    limit = {"lua_shared_dict headgate 64m;": "lua_shared_dict headgate 64m; lua_max_pending_timers 20;"}
    with connected(tmp_path, workers=1, server=timers, options={"replacements": limit}) as (plane, nginx):
        assert nginx.get("/timers").body == b"made"
        plane.run(plane.plane.close)
        plane.until(lambda: "headgate: no connection" in nginx.output(), "end of the connection")
        with Plane(tmp_path / "headgate.sock") as another:
            another.until_connected(1)


def test_an_error_in_the_module_rejects_no_request(tmp_path: Path) -> None:
    broken = """location = /broken { rewrite_by_lua_block { require("headgate").limit(nil) } empty_gif; }"""
    with connected(tmp_path, server=broken) as (_, nginx):
        assert nginx.get("/broken").status == 200
        assert "headgate: " in nginx.output()
