"""Whole programs, for what only the end of one, or a fork, can show."""

import subprocess
import sys
import textwrap

PATIENCE = 30.0  # seconds; only ever reached by a failing test


def printed(program: str, *arguments: object) -> str:
    """Run a program to its end, which is to be a good one without complaints, and give what it printed."""
    # Newer Pythons warn of forking with threads, which is what some of these are about.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(program)]
    done = subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
