"""Runs every command block of the README and of docs/, in order, in a separate directory per page.

In a page, a ```sh block is run line by line (a trailing backslash joins lines); a ```text block right after it shows
what the last line prints, where `…` stands for anything. A ```toml, ```python or ```nginx block whose first line is a
comment with a file's name is written to that file first. Lines that start a server run in the background until it is
ready and end with the page, or where a comment says "Ctrl+C in the terminal of" and how their command begins. Fixed
ports are replaced by free ones, the same one throughout a page. Lines that install are not run; their extras exist.
Except in the README, plain `headgate` commands are forked (tests/forked.py) instead of started by the shell.
"""

import importlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import tomllib
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from scripts import reference
from tests.forked import Forked
from tests.servers import free_port

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "lab" / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PORT = re.compile(
    r"(?<=127\.0\.0\.1:)\d+|(?<=\"127\.0\.0\.1\", )\d+|(?<=localhost:)\d+|(?<=--port )\d+|(?<=http.server )\d+"
)
SERVERS = (
    "headgate serve",
    "headgate master",
    "headgate router",
    "headgate sidecar --master ",
    "headgate bundle serve ",
    "headgate proxy --config ",
    "headgate proxy --self-signed --listen ",
    "uvicorn ",
    "granian ",
    "gunicorn ",
    "waitress-serve ",
    "python -m http.server",
    "python api.py",
)
SILENT_SERVERS = ("nginx ", "haproxy -f ", "envoy -c ", "redis-server ")
"""Servers of which no line says that they are ready; they are when they listen."""
FOLDERS = "|".join(sorted({path.name for path in (ROOT / "src/headgate").iterdir() if path.is_dir()}))
LANGUAGES = {"sh", "text", "toml", "python", "json", "nginx", "http", "yaml", "ini"}
INSTALLS = ("git clone ", "cd headgate", "python3 -m venv ", ". ~/headgate-env/bin/activate", "pip install ")
STOP = "# Ctrl+C in the terminal of "
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
PATIENCE = 60.0  # seconds; only ever reached by a failing test


def blocks(page):
    """Give (language, text) of each fenced block in order."""
    return [(match[1], match[2]) for match in BLOCK.finditer(page.read_text())]


def with_commands():
    return [page for page in PAGES if any(language in ("sh", "bash", "console") for language, _ in blocks(page))]


def servers_of(page):
    """Give the names of the servers that the commands of a page start."""
    lines = [line for language, text in blocks(page) if language == "sh" for line in text.splitlines()]
    return sorted({line.split()[0] for line in lines if line.startswith(SILENT_SERVERS)})


def pages_with_commands():
    return [
        pytest.param(page, id=str(page.relative_to(ROOT)), marks=pytest.mark.needs("curl", *servers_of(page)))
        for page in with_commands()
    ]


def two_free_ports():
    """Give a port that was free a moment ago and whose successor was too: a master's second port is the next one."""
    while True:
        port = free_port()
        with socket.socket() as following, suppress(OSError):
            following.bind(("127.0.0.1", port + 1))
            return port


class Reader:
    """Runs the blocks of one page in an empty directory."""

    def __init__(self, folder, stack, *, forks):
        self.folder = folder
        self.forks = forks
        self.stack = stack
        self.ports = {}
        self.servers = {}
        self.printed = ""
        self.environment = dict(os.environ, NO_COLOR="1", PYTHONUNBUFFERED="1", PYTHONPATH=str(ROOT))
        self.environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin"

    def on_free_ports(self, text):
        for port in PORT.findall(text):
            if port not in self.ports:
                # Two calls may return the same port, or one and its successor.
                taken = {str(int(known) + step) for known in self.ports.values() for step in (-1, 0, 1)}
                while (free := str(two_free_ports())) in taken:
                    pass
                self.ports[port] = free
        return PORT.sub(lambda match: self.ports[match[0]], text)

    def read(self, language, text):
        text = self.on_free_ports(text)
        if language == "sh":
            for line in text.replace("\\\n", " ").splitlines():
                if line.startswith(STOP):
                    (command,) = (one for one in self.servers if one.startswith(line.removeprefix(STOP)))
                    self.servers.pop(command).close()
                elif line.strip() and not line.startswith("#"):
                    self.run(line.strip())
        elif language == "text":
            self.expect(text)
        elif language in ("toml", "python", "nginx"):
            name = re.match(r"# ([\w./-]+\.(?:toml|py|conf))\n", text)
            if name:
                (self.folder / name[1]).write_text(text)

    def run(self, line):
        if line.startswith("make "):
            words = shlex.split(line, comments=True)
            recipe = subprocess.run([*words, "-n"], cwd=ROOT, capture_output=True, text=True)
            assert recipe.returncode == 0, recipe.stderr
            if words == ["make", "run"]:
                assert "headgate serve --demo" in recipe.stdout
                self.run("headgate serve --demo")
            return
        if line.startswith(INSTALLS):
            unknown = set(re.findall(r"[\w-]+", "".join(re.findall(r"\[(.*?)\]", line)))) - set(EXTRAS)
            assert unknown == set(), line
            return
        line = line.removeprefix(".venv/bin/")  # which is on the path here
        if line.startswith("headgate serve") and "--listen" not in line and "--config" not in line:
            line += self.on_free_ports(" --listen 127.0.0.1:8080 --admin 127.0.0.1:8090")
        line = line.removesuffix(" &")
        if line.startswith(SERVERS + SILENT_SERVERS):
            self.servers[line] = self.stack.enter_context(ExitStack())
            self.servers[line].enter_context(self.server(line))
            return
        process, log = self.started(line)
        code = process.wait(PATIENCE)
        self.printed = log.read_text()
        assert code == 0, f"{line}\n{self.printed}"

    def started(self, line):
        """Start a command in the background; return its process, and the file that holds what it prints."""
        log = self.folder / f"{time.monotonic_ns()}.log"
        with log.open("wb") as output:
            if self.forks and re.fullmatch(r"headgate [\w\s./:,=@'+-]+", line):
                words = shlex.split(line)[1:]
                return Forked(words, self.folder, output.fileno(), output.fileno(), environment=self.environment), log
            command = ["bash", "-c", line]
            return subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=output, stderr=output), log

    @contextmanager
    def server(self, line):
        process, log = self.started(f"exec {line}" if not line.startswith("headgate ") else line)
        try:
            self.wait_until_ready(line, process, log)
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)

    def wait_until_ready(self, line, process, log):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            self.printed = log.read_text()
            if line.startswith(SILENT_SERVERS) and listens(process.pid):
                return
            if re.search(
                r"^ready |running on|Listening at|Serving on|Serving HTTP|Started worker", self.printed, re.M | re.I
            ):
                return
            assert process.poll() is None, f"{line}\n{self.printed}"
            time.sleep(0.05)
        pytest.fail(f"not ready: {line}\n{self.printed}")

    def expect(self, text):
        pattern = r".*?".join(map(re.escape, text.strip().split("…")))
        pattern = re.sub(r"(\\ |\\?\n)+", lambda match: r"\s+", pattern)
        assert re.search(pattern, self.printed, re.DOTALL), f"shown:\n{text}\nprinted:\n{self.printed}"


def listens(pid):
    """Whether a process listens on a TCP port; false if it has ended."""
    with suppress(psutil.NoSuchProcess):
        return any(one.status == psutil.CONN_LISTEN for one in psutil.Process(pid).net_connections("tcp"))
    return False


@pytest.mark.parametrize("page", pages_with_commands())
def test_the_commands_of_a_page_work(page, tmp_path):
    with ExitStack() as stack:
        reader = Reader(tmp_path, stack, forks=page.name != "README.md")
        for language, text in blocks(page):
            reader.read(language, text)


def test_there_are_pages_with_commands():
    assert ROOT / "README.md" in with_commands()


def test_links_languages_files_and_modules_in_pages_exist():
    wrong = [f"{page.relative_to(ROOT)}: {problem}" for page in PAGES for problem in problems(page)]
    assert wrong == []


def problems(page):
    """Yield what a page names that does not exist, and the languages of blocks that are not tested."""
    text = page.read_text()
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        path = (page.parent / target).resolve()
        if not (path.exists() or (path.parent == ROOT / "docs" / "reference" and path.name in reference.PAGES)):
            yield f"link to {target}"
    for language in {language for language, _ in blocks(page)} - LANGUAGES:
        yield f"a block of {language}"
    paths = set(re.findall(r"`((?:\w+/)+\w+\.py)`", text)) | set(re.findall(rf"`((?:{FOLDERS})(?:/\w+)+/?)`", text))
    for path in sorted(paths):
        if not any((ROOT / top / path).exists() for top in ("src/headgate", "src", "")):
            yield f"file {path}"
    for name in sorted(
        set(re.findall(r"(?:from|import|`) ?(headgate(?:\.\w+)+)", text)) - {"headgate.toml", "headgate.snapshot"}
    ):
        if not is_defined(name):
            yield f"module {name}"


def is_defined(name):
    """Whether a dotted name is a module, or an attribute of one."""
    module, _, attribute = name.rpartition(".")
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        return bool(module) and is_defined(module) and hasattr(importlib.import_module(module), attribute)
    return True


def test_the_page_for_contributors_names_files():
    assert len(re.findall(r"`[\w/]+\.py`", (ROOT / "docs" / "contributing.md").read_text())) > 20
