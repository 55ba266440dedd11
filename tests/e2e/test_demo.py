"""`headgate demo` as a program: the loop from load to limit to advice, its figures, and its end."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.e2e.programs import PATIENCE, Program
from tests.forked import Forked

_LONGEST = 90.0  # seconds; only ever reached by a failing test


def demonstration(folder: Path, *arguments, stdout=None):
    """Start `headgate demo` for some seconds."""
    log, out = folder / "demo.err", folder / "demo.out"
    with log.open("wb") as err, out.open("wb") as output:
        return Program(Forked(("demo", *arguments), folder, (stdout or output).fileno(), err.fileno()), log, out)


def test_under_ten_times_the_capacity_people_are_served_and_without_headgate_they_are_not(tmp_path):
    program = demonstration(tmp_path, "--seconds", "12", "--json")
    assert program.process.wait(_LONGEST) == 0, program.said()
    assert program.said() == ""
    (line,) = program.out.read_text().splitlines()
    figures = json.loads(line)
    assert list(figures) == ["phases"]
    phases = {phase["name"]: phase for phase in figures["phases"]}
    assert list(phases) == ["calm", "overload_without", "overload_with", "outage", "recovery"]
    names = ["name", "offered", "capacity", "goodput", "people_served", "people_p99_ms", "fraction"]
    assert all(list(phase) == names for phase in phases.values())
    without, limited = phases["overload_without"], phases["overload_with"]
    assert without["fraction"] is None
    assert phases["calm"]["fraction"] == phases["recovery"]["fraction"] == 1.0
    assert phases["outage"]["goodput"] == 0.0
    assert phases["recovery"]["people_served"] > 0.9
    if min(without["offered"], limited["offered"]) <= 4 * limited["capacity"]:
        pytest.skip("everything is in one process, which was too busy to offer the overload")
    assert without["people_served"] < 0.5 < 0.9 < limited["people_served"]
    assert limited["people_p99_ms"] < without["people_p99_ms"] == 1000
    assert limited["goodput"] > max(50.0, without["goodput"])
    assert limited["fraction"] < 0.5


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_signal_ends_it(tmp_path, number, code):
    program = demonstration(tmp_path)
    program.until(lambda: "Calm" in program.out.read_text(), "phase")
    program.process.send_signal(number)
    assert program.process.wait(PATIENCE) == code
    assert program.said() == ""


def test_a_closed_output_ends_it(tmp_path):
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as stdout:
        program = demonstration(tmp_path, stdout=stdout)
    os.close(reader)
    assert program.process.wait(PATIENCE) == 141
    assert program.said() == ""
