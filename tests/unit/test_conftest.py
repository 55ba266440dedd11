"""The test suite itself: markers, the list of missing servers, and the check for processes left running."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import servers

ROOT = Path(__file__).resolve().parents[2]
SUITE = """
import subprocess, sys
import pytest

@pytest.mark.needs("no-such-server")
def test_one(): raise AssertionError("never run")

@pytest.mark.needs("no-such-server", "nor-this-one")
def test_two(): raise AssertionError("never run")

@pytest.mark.needs("sh")
def test_three(): pass
"""
LEAK = """
import subprocess
def test_leak(): subprocess.Popen(["sleep", "60"]).returncode = 0
def test_tidy(): subprocess.run(["true"], check=True)
"""


def run_suite(folder: Path, source: str, **environment: str) -> tuple[int, list[str]]:
    (folder / "test_suite.py").write_text(source)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = needs\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", str(folder)]
    inherited = {name: value for name, value in os.environ.items() if name != "HEADGATE_REQUIRE_SERVERS"}
    done = subprocess.run(
        command, check=False, cwd=ROOT, env=inherited | environment, capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout.splitlines()


def test_the_list_of_missing_servers_comes_after_the_summary_line(tmp_path: Path) -> None:
    status, lines = run_suite(tmp_path, SUITE)
    assert status == 0
    assert "1 passed, 2 skipped" in lines[-4]
    assert lines[-3].startswith("Skipped for want of a server")
    assert lines[-2:] == ["  no-such-server: 2 tests", "  nor-this-one: 1 test"]


def test_a_process_left_running_fails_its_test(tmp_path: Path) -> None:
    status, lines = run_suite(tmp_path, LEAK)
    assert status == 1
    assert "2 passed, 1 error" in lines[-2]
    assert "left behind" in "\n".join(lines)


def test_a_test_is_marked_with_its_folder_and_with_what_it_uses() -> None:
    files = ["tests/e2e/test_proxy_chromium.py", "tests/property/test_url.py"]
    options = ["--collect-only", "-q", "-p", "no:cacheprovider", "-m", "not (e2e and browser or property)"]
    command = [sys.executable, "-m", "pytest", *options, *files]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert re.search(r"no tests collected \(\d+ deselected\)", done.stdout)


def test_a_server_that_does_not_start_fails_with_what_it_printed(tmp_path: Path) -> None:
    with pytest.raises(ChildProcessError) as refused:
        servers.started([sys.executable, "-c", "print('no luck')"], servers.free_port(), tmp_path).__enter__()
    assert refused.value.__notes__ == ["no luck\n"]
