"""The fuzz target runs for a short time without findings."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.deep
@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris has no wheel for this machine")
def test_mutated_bundles_are_read_or_refused(tmp_path):
    options = ["-runs=4000", "-max_total_time=30", "-seed=7", f"-artifact_prefix={tmp_path}/"]
    command = [sys.executable, "-m", "tests.fuzz.fuzz_bundle", *options]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=120)
    found = sorted(tmp_path.iterdir())
    assert (done.returncode, found) == (0, []), done.stderr[-3000:]
    assert "Done " in done.stderr
