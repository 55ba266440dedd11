"""Wheel and sdist: what is in them, and what the wheel can do in a clean environment.

Each extra alone is tried with the locked versions; all of them with the oldest versions that pyproject.toml allows, and
with the newest on each Python that is here.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from contextlib import contextmanager
from email import message_from_bytes
from pathlib import Path

import pytest

from tests.e2e.programs import Program

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

AGENT = """\
import sys
from headgate import Courtesy, SharedThrottle, open_bundle
import headgate.agent.urllib, headgate.bundle, headgate.origin.asgi, headgate.origin.wsgi
Courtesy("ExampleBot")
print(*sorted({name.partition(".")[0] for name in sys.modules} - {"__main__", *sys.stdlib_module_names}))
"""
INSTALL = "install it from the repository: pip install"
PROGRAMS = {
    "aiohttp": "import headgate.agent.aiohttp",
    "cli": "import headgate.cli.program",
    "envoy": "from headgate.rlqs.server import _import_grpc as needed; needed()",
    "httpx2": "import headgate; from headgate.agent.httpx import Client; Client(headgate.Courtesy('A')).close()",
    "gate": "import headgate.runtime.demo_origin, headgate.runtime.router, headgate.runtime.sidecar",
    "niquests": "import headgate.agent.niquests",
    "opentelemetry": "import headgate.agent.opentelemetry",
    "proxy": "import headgate.runtime.prefetch_proxy_server",
    "re2": "from headgate.origin.routes import _search as search; assert search('^a+$')(b'aa')",
    "redis": "import headgate.store.redis_store, headgate.runtime.master_store, redis.asyncio.cluster",
    "requests": "import headgate.agent.requests",
    "robots": "import headgate.agent.robots",
    "scrapy": "import headgate.agent.scrapy",
    "sign": "import headgate.bundle.signing.subset_verifier, headgate.bundle.signing.keys, headgate.identity",
    "uvloop": "import uvloop",
}
"""What needs each extra."""


def run(folder, *words):
    return subprocess.run([folder / "bin" / words[0], *words[1:]], cwd=folder, capture_output=True, text=True)


def build(source, folder):
    """Build sdist and wheel of a tree; return both."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", folder]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    return next(folder.glob("*.tar.gz")), next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build(ROOT, tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def wheel(built):
    return built[1]


@pytest.fixture
def install(wheel, tmp_path):
    """Install the wheel with some extras; return the folder of the environment."""

    def install(*extras):
        to = ["--offline", "--python", tmp_path / "bin/python"]
        to += [f"--constraints={lock}" for lock in (ROOT / "requirements").glob("[!a]*.txt")]
        subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, "--allow-existing", tmp_path], check=True)
        subprocess.run([UV, "pip", "install", "--quiet", *to, f"{wheel}[{','.join(extras)}]"], check=True)
        return tmp_path

    return install


@contextmanager
def running(folder, *words):
    log = folder / "log"
    with log.open("wb") as written:
        process = subprocess.Popen([folder / "bin/headgate", *words], cwd=folder, stdout=written, stderr=written)
    try:
        yield Program(process, log, log)
    finally:
        process.terminate()
        process.wait(60)


def test_the_wheel_has_the_package_with_its_data_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
        metadata = message_from_bytes(
            archive.read(f"{wheel.name.removesuffix('-py3-none-any.whl')}.dist-info/METADATA")
        )
    source = ROOT / "src"
    assert sorted(names) == sorted(
        str(path.relative_to(source))
        for path in (source / "headgate").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    )
    assert {"headgate/py.typed", "headgate/store/records.lua", "headgate/origin/sidecar/nginx.conf"} <= set(names)
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert set(metadata.get_all("Provides-Extra")) == set(EXTRAS)


def test_the_sdist_has_what_tests_need_and_builds_the_same_again(built, tmp_path):
    with tarfile.open(built[0]) as archive:
        archive.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.iterdir()
    assert {path.name for path in tree.iterdir()} == {
        *("LICENSE", "PKG-INFO", "README.md", "SECURITY.md", "docs", "examples", "lab", "pyproject.toml", "share"),
        *("src", "tests", ".gitignore"),
    }  # fmt: skip
    for path in tree.rglob("*"):
        os.utime(path, (1, 1))
    again = build(tree, tmp_path)
    assert [hashlib.sha256(path.read_bytes()).digest() for path in again] == [
        hashlib.sha256(path.read_bytes()).digest() for path in built
    ]


def test_an_index_would_accept_both(built):
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *built], check=True, capture_output=True)


def test_the_base_is_the_agent_and_the_bundle_reader(install):
    folder = install()
    done = run(folder, "python", "-c", AGENT)
    assert (done.stderr, done.stdout.split()) == ("", ["can_ada", "headgate", "msgspec"])
    done = run(folder, "python", "-c", PROGRAMS["httpx2"])
    assert "pip install '.[httpx2]'" in done.stderr
    done = run(folder, "headgate", "--version")
    sentence = "headgate: the program needs the extra 'gate', 'proxy' or, without servers, 'cli'; "
    assert (done.returncode, done.stderr) == (2, f"{sentence}{INSTALL} '.[gate]'\n")


def test_every_extra_is_tried_and_all_has_each_of_them():
    assert set(PROGRAMS) | {"all"} == set(EXTRAS)
    (everything,) = EXTRAS["all"]
    left_out = {"cli", "niquests"}  # one is part of `gate`, the other replaces urllib3
    assert set(everything.removeprefix("headgate[").removesuffix("]").split(",")) == set(PROGRAMS) - left_out


@pytest.mark.deep
@pytest.mark.parametrize("extra", sorted(PROGRAMS))
def test_an_extra_alone_brings_what_its_modules_need(install, extra):
    done = run(install(extra), "python", "-c", PROGRAMS[extra])
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.deep
def test_a_command_without_its_extra_names_it(install):
    folder = install("cli")
    assert "extras: cli\nnot installed: " in run(folder, "headgate", "--version").stdout
    for words, command, extra in [
        (["serve", "--demo"], "serve", "gate"),
        (["master"], "master", "gate"),
        (["demo"], "demo", "gate"),
        (["bundle", "serve", "site.wbn"], "bundle serve", "gate"),
        (["keys", "new", "-o", "keys"], "keys new", "gate"),
        (["proxy"], "proxy", "proxy"),
    ]:
        done = run(folder, "headgate", *words)
        sentence = f"headgate: {command} needs the extra '{extra}'; {INSTALL} '.[{extra}]'\n"
        assert (done.returncode, done.stdout, done.stderr) == (2, "", sentence)
    assert [run(folder, "headgate", word).returncode for word in ("init", "doctor")] == [0, 0]
    for words in [
        ["bundle", "list", "none.wbn"],
        ["advice", "fetch", "http://127.0.0.1:1"],
        ["get", "http://127.0.0.1:1"],
    ]:
        assert "extra" not in run(folder, "headgate", *words).stderr


@pytest.mark.deep
def test_a_gate_limits_and_a_master_starts(install):
    folder = install("gate")
    address = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
    with running(folder, "serve", "--demo", *address) as gate:
        assert gate.statuses(6)[0] == 200
        assert 503 in gate.statuses(6)
    with running(folder, "master", "--domain", "api=10/s", *address) as master:
        master.wait_for(r"^ready ")


@pytest.mark.deep
def test_a_prefetch_proxy_starts_with_its_own_certificate(install):
    folder = install("proxy")
    (folder / "headgate.toml").write_text('[proxy]\nlisten = "127.0.0.1:0"\n')
    assert run(folder, "headgate", "config", "check").stdout == "headgate.toml: valid, 0 domains\n"
    with running(folder, "proxy") as proxy:
        proxy.wait_for(r"^ready https://")


def interpreter(version):
    """Return a Python of this version that runs, None if there is none."""
    found = [shutil.which(f"python{version}"), *Path.home().glob(f".pyenv/versions/{version}.*/bin/python3")]
    return next((path for path in found if path and subprocess.run([path, "-c", ""], stderr=-3).returncode == 0), None)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("python", "resolution"),
    [("3.11", "lowest-direct"), *((python, "highest") for python in ("3.11", "3.12", "3.13", "3.14"))],
)
def test_oldest_and_newest_dependencies(wheel, tmp_path, python, resolution):
    """It downloads packages. Scrapy is left out: it needs a newer cryptography than the oldest that is allowed."""
    if (found := interpreter(python)) is None:
        pytest.skip(f"Python {python} is not installed")
    subprocess.run([UV, "venv", "--quiet", "--python", found, "--allow-existing", tmp_path], check=True)
    extras = sorted(set(PROGRAMS) - {"niquests", "scrapy"})
    to = ["--quiet", "--python", tmp_path / "bin/python", *(f"--extra={extra}" for extra in extras)]
    words = [UV, "pip", "install", *to, "--resolution", resolution, "--requirement", ROOT / "pyproject.toml"]
    done = subprocess.run(words, capture_output=True, text=True)
    if "error sending request" in done.stderr:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    subprocess.run([UV, "pip", "install", *to[:3], "--no-deps", "--offline", wheel], check=True)
    for extra in extras:
        done = run(tmp_path, "python", "-W", "error", "-c", PROGRAMS[extra])
        assert (done.returncode, done.stderr) == (0, ""), extra
    address = ("--listen", "127.0.0.1:0")
    with running(tmp_path, "serve", "--demo", *address, "--admin", "127.0.0.1:0") as gate:
        assert gate.statuses(6)[-1] == 503
        assert "headgate_requests_total" in gate.admin("/metrics")
    with running(tmp_path, "proxy", "--self-signed", *address) as proxy:
        proxy.wait_for(r"^ready https://")
