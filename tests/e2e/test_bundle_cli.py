"""`headgate bundle` as a process: memory, output, exit codes, and the server."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.bundle import BundleWriter
from tests.e2e import polite_origin, programs
from tests.servers import free_port

BASE = "https://example.com/"
PROGRAM = [sys.executable, "-m", "headgate", "bundle"]
VECTORS = Path(__file__).parents[1] / "vectors" / "bundle"
MEGABYTE = 1 << 20


def run(*arguments, **options):
    command = [*PROGRAM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, timeout=programs.PATIENCE, check=False, **options)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A bundle of 200 MB: 1,600 responses of 64 kB, and one of 100 MB."""
    folder = tmp_path_factory.mktemp("large")
    film = folder / "film"
    with film.open("wb") as file:
        file.truncate(100 * MEGABYTE)
    with BundleWriter(folder / "large.wbn", version="b1", primary_url=BASE, manifest_url=BASE + "0") as writer:
        for number in range(1_600):
            payload = bytes(MEGABYTE // 16)
            writer.add(f"{BASE}{number}", headers={"content-type": "image/png"}, payload=payload)
        writer.add(BASE + "film", headers={"content-type": "video/mp4"}, payload=film)
    return folder / "large.wbn"


@pytest.mark.parametrize(
    ("words", "most"),
    [
        (["get", "FILE", BASE + "7"], 40),
        (["get", "FILE", BASE + "film", "-o", "OUT"], 40),
        (["info", "FILE", "--json"], 40),
        (["list", "FILE", "--json"], 40),
        (["list", "FILE", "--json", "--digest"], 48),
        (["extract", "FILE", "-o", "OUT"], 64),
    ],
    ids=lambda words: words[0] if isinstance(words, list) else "",
)
def test_a_large_bundle_takes_little_memory(large, tmp_path, words, most):
    named = {"FILE": large, "OUT": tmp_path / "out"}
    code, megabytes = programs.peak_memory(*PROGRAM, *(named.get(word, word) for word in words))
    assert code == 0
    assert megabytes < most


def test_get_imports_no_unneeded_modules():
    code = (
        "import sys, headgate.cli.program as p\n"
        f"p._run(['bundle', 'get', {str(VECTORS / 'small_b1.wbn')!r}, '/', '-o', {os.devnull!r}])\n"
        "names = ('rich', 'asyncio', 'zmq', 'cryptography', 'httpx2', 'httptools', 'prometheus_client', 'json')\n"
        "print([name for name in names if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]"]


def test_a_terminated_command_leaves_no_temporary_file(tmp_path):
    code = (
        "import os, sys, signal, headgate.cli.program as p\n"
        "from headgate.bundle.files.atomic_file import Output\n"
        "Output.put = lambda *_: os.kill(os.getpid(), signal.SIGTERM)\n"
        f"words = ['bundle', 'convert', {str(VECTORS / 'small_b2.wbn')!r}, '--profile', 'compat']\n"
        "sys.exit(p._run([*words, '--version', 'b2', '-o', 'out']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (143, b"", b"")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["list", "--json"], ["list"], ["get"]], ids=" ".join)
def test_a_closed_pipe_is_not_an_error(large, words):
    command, *flags = words
    url = [BASE + "film"] if command == "get" else []
    with subprocess.Popen(
        [*PROGRAM, command, str(large), *url, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        program.stdout.close()
        assert program.stderr.read() == b""
    assert program.returncode == 141


def on_a_terminal(*arguments):
    """Run with stderr on a terminal; return the exit code and what was shown there."""
    ours, theirs = pty.openpty()
    command = [*PROGRAM, *map(str, arguments)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs, env=environment) as program:
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 65_536):
                shown += piece
        except OSError:
            pass  # Linux's error when the other end is closed
    os.close(ours)
    return program.returncode, shown


@pytest.mark.parametrize(
    ("words", "bar"),
    [
        (["extract", "FILE", "-o", "OUT"], b"extracting"),
        (["convert", "FILE", "--version", "b2", "-o", "OUT"], b"converting"),
        (["verify", "SIGNED"], b"verifying"),
        (["create", "--dir", "FOLDER", "--base-url", BASE, "-o", "OUT"], b"writing"),
    ],
    ids=lambda words: words[0] if isinstance(words, list) else "",
)
def test_long_work_shows_its_progress_on_a_terminal(large, tmp_path, words, bar):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "index.html").write_bytes(b"<p>")
    signed = VECTORS / "small_b2_signed.swbn"
    named = {"FILE": large, "OUT": tmp_path / "out", "SIGNED": signed, "FOLDER": tmp_path / "folder"}
    code, shown = on_a_terminal(*(named.get(word, word) for word in words))
    assert code == 0
    assert bar in shown
    assert b"\x1b" in shown


def test_a_list_of_urls_is_fetched(tmp_path):
    with programs.origin() as origin:
        (tmp_path / "urls.txt").write_text(f"# a comment\n{origin.url}/a\n{origin.url}/b\n{origin.url}/a\n")
        words = ("create", "--urls", tmp_path / "urls.txt", "-o", tmp_path / "out.wbn")
        done = run(*words)
        assert (done.returncode, done.stderr.count(b"\n")) == (0, 1)
        assert origin.seen == ["/.well-known/traffic-advice", "/a", "/b"]
        piped = run(*words[:2], "-", *words[3:-1], "-", input=(tmp_path / "urls.txt").read_bytes())
        assert piped.stdout[:15] == (tmp_path / "out.wbn").read_bytes()[:15]
        assert run("list", "-", input=piped.stdout).stdout == run("list", tmp_path / "out.wbn").stdout
        got = run("get", tmp_path / "out.wbn", f"{origin.url}/b")
        assert (got.returncode, got.stdout) == (0, b"ok\n")
        unreachable = f"http://127.0.0.1:{free_port()}"
        (tmp_path / "urls.txt").write_text(f"{origin.url}/a\n{unreachable}/b\n")
        some = run(*words)
    assert some.returncode == 1
    assert f"left out {unreachable}/b".encode() in some.stderr
    listed = run("list", tmp_path / "out.wbn", "--json")
    assert [json.loads(line)["url"] for line in listed.stdout.splitlines()] == [f"{origin.url}/a"]
    (tmp_path / "urls.txt").write_text(f"{unreachable}/b\n")
    before = (tmp_path / "out.wbn").read_bytes()
    assert run(*words).returncode == 1
    assert (tmp_path / "out.wbn").read_bytes() == before


def test_a_list_of_urls_is_fetched_as_the_origin_advises(tmp_path):
    with polite_origin.running() as origin:
        origin.advise('[{"user_agent": "*", "disallow": true}, {"user_agent": "ExampleBot", "fraction": 1.0}]')
        (tmp_path / "urls.txt").write_text(f"{origin.url}/a\n{origin.url}/b\n")
        words = ("create", "--urls", tmp_path / "urls.txt", "--version", "b2", "-o", tmp_path / "out.wbn")
        refused = run(*words)
        assert refused.returncode == 1
        assert b"disallows all traffic" in refused.stderr
        assert not (tmp_path / "out.wbn").exists()
        assert [one.path for one in origin.asked] == [polite_origin.ADVICE]
        taken = run(*words, "--identity", "ExampleBot")
        assert (taken.returncode, taken.stderr.count(b"\n")) == (0, 1)
        assert [one.path for one in origin.asked[1:]] == [polite_origin.ADVICE, "/a", "/b"]
        assert all(one.fields["User-Agent"].startswith("ExampleBot headgate/") for one in origin.asked[2:])
