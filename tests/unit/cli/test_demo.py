"""`headgate demo` without its sockets: options and lines."""

import pytest

from headgate.cli import demo
from headgate.runtime.demo import PHASES, Frame, PhaseResult

FRAME = Frame(3.0, 1000.0, 103.0, 97.0, people_served=1.0, fraction=0.03)
RESULT = PhaseResult("overload_with", 995.0, 100.0, 97.0, 0.999, 180, 0.03)


@pytest.fixture
def run(headgate, monkeypatch):
    """Run the command with some events in place of the demonstration."""

    async def show(_seconds, view):
        for event in (PHASES[2], FRAME._replace(elapsed=0.5), FRAME, RESULT):
            view(event)
        return [RESULT]

    monkeypatch.setattr(demo, "show", show)
    return lambda *arguments: headgate("demo", "--seconds", "20", *arguments)


@pytest.mark.parametrize("seconds", ["9", "3601", "ten", "nan"])
def test_a_length_out_of_range_is_an_error(headgate, seconds):
    ran = headgate("demo", "--seconds", seconds)
    assert ran.code == 2
    assert "--seconds" in ran.err
    assert ran.out == b""


def test_json_is_the_only_output(run):
    ran = run("--json")
    assert (ran.code, ran.err) == (0, "")
    (phase,) = ran.json["phases"]
    assert phase == {
        "name": "overload_with",
        "offered": 995.0,
        "capacity": 100.0,
        "goodput": 97.0,
        "people_served": 0.999,
        "people_p99_ms": 180,
        "fraction": 0.03,
    }


def test_an_output_that_is_not_a_terminal_has_lines_for_some_frames(run):
    ran = run()
    assert (ran.code, ran.err) == (0, "")
    assert "\x1b" not in ran.out.decode()
    assert ran.lines[-2:] == [
        "   3 s ██░░░░░░░░░░░░░░░░░░ sent  103, served  97 of 1000/s; people 100 %; advice 3.0 %",
        "  wanted 995/s; served 97 of 100/s; people 100 %, p99 180 ms; advice 3.0 %",
    ]
    assert ran.lines[-6] == "Overload, with headgate"


def test_on_a_terminal_frames_are_one_line_that_changes(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    view = demo._Lines(20.0)
    for event in (FRAME, FRAME, RESULT):
        view(event)
    parts = capsys.readouterr().out.split("\r\x1b[K")
    assert len(parts) == 4
    assert [part.count("\n") for part in parts[1:]] == [0, 0, 1]


@pytest.mark.parametrize(
    ("frame", "line"),
    [
        (FRAME._replace(offered=0.0, served=0.0), "   3 s                      sent  103, served   0 of    0/s;"),
        (FRAME._replace(offered=9999.0), "   3 s ██░░░░░░░░░░░░░░░░░░ sent  103, served  97 of 9999/s;"),
        (FRAME._replace(fraction=None, people_served=0.05), "97 of 1000/s; people 5.0 %"),
    ],
)
def test_a_frame_is_one_line(frame, line):
    assert line in demo.frame_line(frame)
    assert ("advice" in demo.frame_line(frame)) == (frame.fraction is not None)
