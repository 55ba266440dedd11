"""share/container/Containerfile: built where a builder runs; elsewhere its steps run one by one, as its user.

Then the program runs with a read-only root in a mount namespace of its own, and its health check is asked.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.servers import ROOT, free_port

FILE = ROOT / "share/container/Containerfile"
STEPS = re.findall(r"^([A-Z]+) (.*)$", FILE.read_text(), re.MULTILINE)
SET_UP = 'mount --make-rprivate / && mount --bind "$1" "$1" && mount -o remount,bind,ro / && shift && exec "$@"'


def last(name):
    return [text for step, text in STEPS if step == name][-1]


@pytest.fixture(scope="module")
def root():
    """A folder that another user can read, with what the steps install."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        (root / "var/lib").mkdir(parents=True)
        (root / "tmp").mkdir()
        (root / "tmp").chmod(0o777)
        for step, text in STEPS:
            if step == "RUN":
                text = text.replace("/opt/headgate", f"{root}/headgate").replace("/source", str(ROOT))
                text = text.replace("python3 ", f"{sys.executable} ").replace("/var/lib/", f"{root}/var/lib/")
                subprocess.run(["sh", "-c", text], check=True)
        yield root


@pytest.mark.deep
def test_a_builder_builds_it():
    if shutil.which("docker") is None or subprocess.run(["docker", "info"], capture_output=True).returncode:
        pytest.skip("no builder runs here")
    subprocess.run(["docker", "build", "--quiet", "--file", FILE, ROOT], check=True)


@pytest.mark.deep
@pytest.mark.needs("curl", "unshare")
def test_its_steps_give_a_program_that_runs_read_only_and_without_root(root):
    user = last("USER").split(":")[0]
    assert (root / "var/lib/headgate").stat().st_uid == int(user) != 0
    port, admin = free_port(), free_port()
    configuration = '[gate]\norigin = "http://127.0.0.1:1"\n[[domain]]\nname = "a"\nrules = ["1/min burst 1"]\n'
    (root / "headgate.toml").write_text(configuration)
    assignments = dict(one.split("=", 1) for step, text in STEPS if step == "ENV" for one in text.split())
    environment = {name: text.replace("/var/lib/", f"{root}/var/lib/") for name, text in assignments.items()}
    environment |= {"PATH": f"{root}/headgate/bin:{os.environ['PATH']}", "TMPDIR": f"{root}/tmp"}
    environment["HEADGATE_GATE_LISTEN"] = assignments["HEADGATE_GATE_LISTEN"].replace("8080", str(port))
    environment["HEADGATE_GATE_ADMIN"] = assignments["HEADGATE_GATE_ADMIN"].replace("8090", str(admin))
    words = [*json.loads(last("ENTRYPOINT")), *json.loads(last("CMD"))]
    words = [word.replace("/etc/headgate", str(root)) for word in words]
    drop = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs", "--bounding-set=-all"]
    check = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
    check = [word.replace("8090", str(admin)) for word in check]
    read_only = ["unshare", "--mount", "sh", "-c", SET_UP, "sh", root]
    assert subprocess.run([*read_only, "touch", "/usr/writable"], stderr=subprocess.DEVNULL).returncode
    with subprocess.Popen(
        [*read_only, *drop, *words],
        cwd="/", env=environment, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            end = time.monotonic() + 30
            while subprocess.run(check, stderr=subprocess.DEVNULL).returncode and time.monotonic() < end:
                assert process.poll() is None, process.stderr.read()
                time.sleep(0.2)
            subprocess.run(check, check=True)
            ask = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", f"http://127.0.0.1:{port}/"]
            assert subprocess.check_output(ask) == b"502"
        finally:
            process.terminate()
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 0, said
    assert (root / "var/lib/headgate/gate.snapshot").stat().st_uid == int(user)
    assert all(json.loads(line)["level"] == "info" for line in said.splitlines() if not line.startswith("ready "))
    assert subprocess.run(check, stderr=subprocess.DEVNULL).returncode == 1
