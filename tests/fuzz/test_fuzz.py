"""Each fuzz target runs for a short time without findings: `make fuzz` runs them longer."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.fuzz.run import run_loop
from tests.fuzz.targets import TARGETS, Target

ROOT = Path(__file__).resolve().parents[2]


def test_make_fuzz_runs_every_target():
    assert re.search(r"for target in (.*?);", (ROOT / "Makefile").read_text())[1].split() == list(TARGETS)


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_their_mutations_are_read_or_refused(name):
    for seed in TARGETS[name].seeds:
        TARGETS[name].run(seed)
    run_loop(TARGETS[name], ["-runs=100", "-seed=7"])


def test_the_loop_keeps_the_input_of_a_finding(tmp_path):
    def run(content):
        assert b"\xff" not in content

    with pytest.raises(AssertionError):
        run_loop(Target(run, [b"a"]), ["-runs=5000", "-seed=7", f"-artifact_prefix={tmp_path}/"])
    (found,) = tmp_path.iterdir()
    assert b"\xff" in found.read_bytes()


@pytest.mark.deep
@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris has no wheel for this machine")
@pytest.mark.parametrize("name", TARGETS)
def test_atheris_finds_nothing_in_a_short_time(name, tmp_path):
    options = ["-runs=4000", "-max_total_time=30", "-seed=7", f"-artifact_prefix={tmp_path}/"]
    command = [sys.executable, "-m", "tests.fuzz.run", name, *options]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=120)
    found = sorted(tmp_path.iterdir())
    assert (done.returncode, found) == (0, []), done.stderr[-3000:]
    assert "Done " in done.stderr
