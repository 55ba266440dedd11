"""`headgate bundle` as a process: memory, output, exit codes, and the server."""

import json
import os
import pty
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from headgate.bundle import BundleWriter
from tests import signers
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


def measured(*arguments):
    """Run in a process of its own; return the exit code and the most memory it ever had, in MB."""
    code = (
        "import resource, subprocess, sys\n"
        "done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)\n"
        "print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = subprocess.run([sys.executable, "-c", code, *PROGRAM, *map(str, arguments)], capture_output=True, check=True)
    returncode, kilobytes = map(int, done.stdout.split())
    return returncode, kilobytes / 1024


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
    code, megabytes = measured(*(named.get(word, word) for word in words))
    assert code == 0
    assert megabytes < most


def test_a_large_response_that_is_signed_takes_little_memory(large, tmp_path):
    signed = tmp_path / "signed.wbn"
    signed.write_bytes(signers.vouched(large.read_bytes()))
    code, megabytes = measured("get", signed, BASE + "film", "-o", tmp_path / "film")
    assert code == 0
    assert megabytes < 40
    assert (tmp_path / "film").stat().st_size == 100 * MEGABYTE
    code, megabytes = measured("extract", signed, "-o", tmp_path / "out")
    assert code == 0
    assert megabytes < 64


def test_a_large_directory_takes_little_memory(tmp_path):
    root = tmp_path / "site"
    root.mkdir()
    for number in range(20):
        with (root / f"{number}.bin").open("wb") as file:
            file.truncate(10 * MEGABYTE)
    words = ("create", "--dir", root, "--base-url", BASE, "-o", tmp_path / "out.wbn")
    code, megabytes = measured(*words)
    assert code == 0
    assert megabytes < 64
    assert (tmp_path / "out.wbn").stat().st_size > 200 * MEGABYTE


def test_get_imports_no_unneeded_modules():
    code = (
        "import sys, headgate.cli.program as p\n"
        f"p._run(['bundle', 'get', {str(VECTORS / 'small_b1.wbn')!r}, '/', '-o', {os.devnull!r}])\n"
        "names = ('rich', 'asyncio', 'zmq', 'cryptography', 'httpx2', 'httptools', 'prometheus_client', 'json')\n"
        "print([name for name in names if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]"]


def test_json_goes_to_stdout_and_messages_to_stderr():
    good = run("list", VECTORS / "hello_b2.wbn", "--json")
    assert (good.returncode, good.stderr) == (0, b"")
    assert [json.loads(line)["status"] for line in good.stdout.splitlines()] == [200, 200]
    bad = run("info", VECTORS / "hello_b1.wbn", "--json")
    assert (bad.returncode, bad.stderr) == (1, b"")
    assert json.loads(bad.stdout)["step"] == "3.3 step 24"
    spoken = run("info", VECTORS / "hello_b1.wbn")
    assert (spoken.returncode, spoken.stdout, spoken.stderr.count(b"\n")) == (1, b"", 1)


def test_json_is_utf_8_whatever_the_terminal_s_encoding(tmp_path):
    with BundleWriter(tmp_path / "a.wbn") as writer:
        writer.add(BASE, headers={"content-type": "text/plain", "x-a": "é"}, payload=b"x")
    done = run("list", tmp_path / "a.wbn", "--json", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert json.loads(done.stdout.decode())["headers"]["x-a"] == "é"


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


def test_a_full_device_is_a_one_line_error(large):
    done = run("get", large, BASE + "7", "-o", "/dev/full")
    assert done.returncode == 1
    assert done.stderr.count(b"\n") == 1
    assert b"/dev/full: No space left" in done.stderr


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
        unheard = f"http://127.0.0.1:{free_port()}"
        (tmp_path / "urls.txt").write_text(f"{origin.url}/a\n{unheard}/b\n")
        some = run(*words)
    assert some.returncode == 1
    assert f"left out {unheard}/b".encode() in some.stderr
    listed = run("list", tmp_path / "out.wbn", "--json")
    assert [json.loads(line)["url"] for line in listed.stdout.splitlines()] == [f"{origin.url}/a"]
    (tmp_path / "urls.txt").write_text(f"{unheard}/b\n")
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


def test_a_list_of_urls_is_fetched_at_the_pace_of_retry_after(tmp_path):
    with polite_origin.running() as origin:
        busy = polite_origin.Answer(503, {"Retry-After": "1"})
        origin.say("/a", busy, polite_origin.Answer())
        origin.say("/busy", polite_origin.Answer(429, {"Retry-After": "3600"}))
        (tmp_path / "urls.txt").write_text(f"{origin.url}/a\n{origin.url}/busy\n{origin.url}/c\n")
        done = run("create", "--urls", tmp_path / "urls.txt", "--version", "b2", "-o", tmp_path / "out.wbn")
    assert done.returncode == 1
    paths = [one.path for one in origin.asked]
    assert paths == [polite_origin.ADVICE, "/a", "/a", "/busy"]
    assert f"left out {origin.url}/busy: answered 429".encode() in done.stderr
    assert f"left out {origin.url}/c: not requested: its origin is busy".encode() in done.stderr
    listed = run("list", tmp_path / "out.wbn", "--json")
    assert [json.loads(line)["url"] for line in listed.stdout.splitlines()] == [f"{origin.url}/a"]


def ask(url, method="GET", **fields):
    """Ask; return status, fields and body, whatever the status."""
    headers = {name.replace("_", "-"): value for name, value in fields.items()}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method, headers=headers)) as response:
            return response.status, response.headers, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def serving(folder, *arguments):
    return programs.headgate(folder, "bundle", "serve", *arguments, "--listen", "127.0.0.1:0")


def test_a_bundle_is_served_at_the_root_and_at_its_name(tmp_path):
    content = (VECTORS / "small_b1.wbn").read_bytes()
    with serving(tmp_path, VECTORS / "small_b1.wbn") as program:
        url = program.wait_for(r"^ready (http://127\.0\.0\.1:\d+/small_b1\.wbn)$")[1]
        root = url.removesuffix("small_b1.wbn")
        for address in (url, root):
            status, fields, body = ask(address)
            assert (status, body) == (200, content)
            assert fields["Content-Type"] == "application/webbundle;v=b1"
            assert fields["X-Content-Type-Options"] == "nosniff"
        assert ask(url, Range="bytes=0-9")[::2] == (206, content[:10])
        assert ask(url, If_None_Match=fields["ETag"])[0] == 304
        assert ask(url, "HEAD")[::2] == (200, b"")
        assert ask(root + "other")[0] == 404
        assert [ask(root, method)[0] for method in ("POST", "PUT", "DELETE")] == [405] * 3
        assert program.end() == 0


def test_the_site_inside_is_served_with_its_variants(tmp_path):
    with serving(tmp_path, VECTORS / "variants_b1.wbn", "--unpack") as program:
        root = program.wait_for(r"^ready (http://127\.0\.0\.1:\d+/)variants_b1\.wbn$")[1]
        status, fields, body = ask(root, Accept_Encoding="br", Accept_Language="fr")
        assert (status, body, fields["Content-Type"]) == (200, b"body br;fr", "text/plain")
        assert ask(root + "manifest.webmanifest")[0] == 200
        assert ask(root + "nope")[0] == 404
        assert ask(root, "POST")[0] == 405


def test_the_server_reads_bundles_in_the_given_profile(tmp_path):
    bundle = VECTORS / "hello_b1.wbn"  # without a manifest
    returned, said = programs.refused(tmp_path, "bundle", "serve", bundle, "--listen", "127.0.0.1:0")
    assert returned == 1
    assert "(3.3 step 24)" in said
    with serving(tmp_path, bundle, "--profile", "compat") as program:
        url = program.wait_for(r"^ready (\S+)$")[1]
        assert ask(url)[2] == bundle.read_bytes()


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (b"no bundle", 1, "(3.3 step 2)"),
        (b"", 1, "(3.3 step 2)"),
        (None, 2, "No such file"),
    ],
)
def test_an_invalid_bundle_is_not_served(tmp_path, content, code, words):
    if content is not None:
        (tmp_path / "no.wbn").write_bytes(content)
    returned, said = programs.refused(tmp_path, "bundle", "serve", "no.wbn", "--listen", "127.0.0.1:0")
    assert (returned, said.count("\n")) == (code, 1)
    assert said.startswith("headgate: no.wbn: ")
    assert words in said


def test_an_address_in_use_is_wrong_usage(tmp_path):
    with programs.origin() as origin:
        listen = origin.url.removeprefix("http://")
        returned, said = programs.refused(tmp_path, "bundle", "serve", VECTORS / "small_b1.wbn", "--listen", listen)
    assert returned == 2
    assert "--listen" in said
