"""`headgate sidecar` as a process: its start, socket, admin listener and end; each server has a file of its own."""

import signal
import socket
import stat

import pytest

from tests.e2e.bus_setup import running_master
from tests.e2e.nginx_lua_setup import nginx
from tests.e2e.programs import headgate, origin, refused

NO_MASTER = "127.0.0.1:9"


@pytest.fixture(params=["--nginx-lua", "--auth-request"])
def server(request):
    """The flag of a server that connects to the sidecar."""
    return request.param


def sidecar(folder, *arguments, master=NO_MASTER):
    """Run a sidecar with its socket at `s` in the folder."""
    return headgate(folder, "sidecar", "--master", master, "--domain", "api", *arguments)


def connect(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_sidecar_without_a_running_master_is_ready_and_sigterm_ends_it(server, tmp_path):
    path = tmp_path / "s"
    with sidecar(tmp_path, server, path) as running:
        assert running.ready == {
            "server": server.removeprefix("--"),
            "domains": "1",
            "masters": NO_MASTER,
            "admin": "none",
            "address": str(path),
        }
        assert running.said().endswith(f"ready {path}\n")
        connect(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o666
        assert running.end() == 0
    assert not path.exists()


def test_sidecar_without_a_running_haproxy_is_ready_and_says_what_is_missing(tmp_path):
    path = tmp_path / "s"
    with sidecar(tmp_path, "--haproxy", path, "--admin", "127.0.0.1:0") as running:
        assert running.ready["address"] == str(path)
        running.wait_for(f"^headgate: HAProxy at {path} does not have the holds: No such file or directory$")
        assert running.admin("/livez") == "alive\n"
        assert running.end() == 0
    assert [file for file in tmp_path.iterdir() if file.is_socket()] == []


def test_socket_of_a_running_sidecar_is_not_taken(server, tmp_path):
    path = tmp_path / "s"
    with sidecar(tmp_path, server, path) as running:
        assert running.ready
        code, said = refused(tmp_path, "sidecar", "--master", NO_MASTER, "--domain", "api", server, path)
        assert code == 2
        assert said == (
            f"headgate: {server}: {str(path)!r} is in use (another process listens); stop that process, or name "
            "another path\n"
        )
        connect(path)


def test_admin_listener_shows_what_is_missing(server, tmp_path):
    with (
        running_master("tcp://127.0.0.1:0", "api=10/s") as master,
        sidecar(tmp_path, server, tmp_path / "s", "--admin", "127.0.0.1:0", master=master.address) as running,
    ):
        assert running.admin("/livez") == "alive\n"
        assert 'headgate_master_up{master="' in running.admin("/metrics")
        running.until(lambda: running.state()["masters"] == [{"address": master.address, "up": True}], "master")
        master.process.kill()
        running.until(lambda: running.readyz() == "no master is connected\n", "page that misses the master")
        expected = f"headgate: master {master.address} is not connected; no master is connected, so no further clients"
        running.wait_for(expected)


@pytest.mark.parametrize("allowed", ["own", "other"])
def test_master_admits_a_sidecar_by_its_key(tmp_path, allowed):
    for name in ("master", "own", "other"):
        assert refused(tmp_path, "keys", "new", "-o", name)[0] == 0
    master_keys = ("--curve-key", "master/secret.key", "--curve-allow", f"{allowed}/public.key")
    keys = ("--curve-key", "own/secret.key", "--curve-server", "master/public.key")
    with headgate(tmp_path, "master", "--listen", "127.0.0.1:0", "--domain", "api=10/s", *master_keys) as master:
        options = ("--nginx-lua", tmp_path / "s", "--admin", "127.0.0.1:0", *keys)
        with sidecar(tmp_path, *options, master=master.ready["address"]) as running:
            assert running.ready
            if allowed == "own":
                running.until(lambda: running.state()["masters"][0]["up"], "master")
            else:
                running.wait_for("the master refuses the public key")
                assert not running.state()["masters"][0]["up"]


def test_reload_replaces_the_socket_and_an_invalid_file_does_not(server, tmp_path):
    key = server.removeprefix("--").replace("-", "_")
    path, file = tmp_path / "s", tmp_path / "headgate.toml"

    def write(text):
        file.write_text(f'[sidecar]\nmaster = "{NO_MASTER}"\ndomain = "api"\n{text}\n')

    write(f'{key} = "{path}"')
    with headgate(tmp_path, "sidecar") as running:
        assert running.ready
        write(f'{key} = "{tmp_path / "other"}"\nsocket_mode = "0600"')
        running.process.send_signal(signal.SIGHUP)
        running.wait_for("headgate: headgate.toml read again$")
        connect(tmp_path / "other")
        assert not path.exists()
        write(f'{key} = "{tmp_path}/none/s"')
        running.process.send_signal(signal.SIGHUP)
        running.wait_for("No such file or directory.*; the configuration in force stays as it is$")
        connect(tmp_path / "other")
        assert running.end() == 0
    assert not (tmp_path / "other").exists()


@pytest.mark.needs("nginx-lua")
def test_reload_changes_the_rejections_of_nginx_and_keeps_its_holds(tmp_path):
    path, file = tmp_path / "s", tmp_path / "headgate.toml"
    with (
        running_master("tcp://127.0.0.1:0", "api=1/min burst 3") as master,
        origin() as behind,
        nginx(tmp_path, path, behind.url) as server,
    ):
        text = f'[sidecar]\nmaster = "{master.address}"\ndomain = "api"\nnginx_lua = "{path}"\nadmin = "127.0.0.1:0"\n'
        file.write_text(text)
        with headgate(tmp_path, "sidecar") as running:
            running.until(lambda: running.readyz() == "ready\n", "connection of nginx")
            running.until(lambda: server.get().status == 503, "rejection")
            admitted = len(behind.seen)
            file.write_text(text + 'rejection_status = 429\n[[domain]]\nname = "api"\nrules = ["1/min burst 3"]')
            running.process.send_signal(signal.SIGHUP)
            answer = running.until(lambda: found if (found := server.get()).status != 503 else None, "other status")
            assert (answer.status, answer.headers["RateLimit-Policy"]) == (429, '"api";q=3;w=180')
            assert len(behind.seen) == admitted
