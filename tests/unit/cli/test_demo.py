"""`headgate demo` without its processes: options, the output, and the picture."""

import os
from contextlib import contextmanager

import pytest

from headgate.cli import demo, demo_picture
from headgate.runtime.demo.measure import PhaseResult
from headgate.runtime.demo.plan import MAX_SECONDS, PHASES, Plan
from headgate.runtime.demo.show import Frame

PLAN = Plan(20.0)
FRAME = Frame(
    PHASES[2], 1000.0, 103.0, 97.0, people_served=1.0, fraction=0.03, limit=15.0, queued=3, elapsed=3.0, seconds=8.0
)
RESULT = PhaseResult("overload_with", 995.0, 100.0, 97.0, 0.999, 180, 0.03)


@pytest.mark.parametrize("seconds", ["9", "3601", "ten", "nan"])
def test_a_length_out_of_range_is_an_error(headgate, seconds):
    ran = headgate("demo", "--seconds", seconds)
    assert ran.code == 2
    assert "--seconds" in ran.err
    assert ran.out == b""


def run(headgate, monkeypatch, *arguments):
    def show(plan, view):
        for event in (PHASES[2], FRAME, RESULT):
            view(event)
        return [RESULT]

    monkeypatch.setattr(demo, "run_show", show)
    return headgate("demo", "--seconds", "20", *arguments)


def test_json_is_the_only_output(headgate, monkeypatch):
    ran = run(headgate, monkeypatch, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.json == {
        "phases": [
            {
                "name": "overload_with",
                "offered": 995.0,
                "capacity": 100.0,
                "goodput": 97.0,
                "people_served": 0.999,
                "people_p99_ms": 180,
                "fraction": 0.03,
            }
        ]
    }


def test_an_output_that_is_not_a_terminal_has_lines(headgate, monkeypatch):
    ran = run(headgate, monkeypatch)
    assert (ran.code, ran.err) == (0, "")
    text = ran.out.decode()
    assert "Overload, with headgate\n" in text
    assert "\x1b" not in text
    assert "served  97 of 100/s; people 100 %; advice 3.0 %\n" in text
    assert "served 97 of 100/s; people 100 %, p99 180 ms; advice 3.0 %\n" in text


@contextmanager
def pipe(monkeypatch):
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with os.fdopen(reader, "rb", buffering=0) as ours, os.fdopen(writer, "w", encoding="utf-8") as theirs:
        monkeypatch.setattr("sys.stdout", theirs)
        yield ours, theirs
        monkeypatch.undo()


def test_a_closed_output_ends_the_demonstration(monkeypatch):
    with pipe(monkeypatch) as (ours, _):
        output = demo._Output()
        assert output.write("line")
        ours.close()
        for use in (output.check, lambda: output.write("line")):
            with pytest.raises(BrokenPipeError):
                use()


def test_an_output_that_is_not_read_loses_lines_and_never_waits(monkeypatch):
    with pipe(monkeypatch) as (ours, theirs):
        output = demo._Output()
        while output.check():
            os.write(theirs.fileno(), b"x" * 4096)
        assert not output.write("lost")
        while not output.check():
            ours.read(4096)
        assert output.write("shown")


def test_the_picture_is_drawn_again_in_place(monkeypatch):
    class Terminal:
        draws = True
        has_room = True

        def __init__(self):
            self.texts = []

        def write(self, text):
            self.texts.append(text)
            return self.has_room

    terminal = Terminal()
    view = demo._Terminal(terminal, PLAN)
    height = len(demo_picture.Picture(PLAN).draw(FRAME, progress=0.0))
    for event in (PHASES[2], FRAME, FRAME, RESULT, PHASES[3]):
        view(event)
    erasures = [text.startswith(f"\x1b[{height}A\x1b[J") for text in terminal.texts]
    assert erasures == [False, False, False, True, True, False]
    assert [text.count("\n") for text in terminal.texts[2:4]] == [height - 1] * 2


@pytest.mark.parametrize(
    ("columns", "lines", "term", "draws"),
    [(80, 14, "xterm", True), (79, 14, "xterm", False), (80, 13, "xterm", False), (80, 14, "dumb", False)],
)
def test_a_picture_needs_a_terminal_that_it_fits(monkeypatch, columns, lines, term, draws):
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", str(lines))
    assert demo._fits_terminal() == draws


def test_the_picture_shows_load_against_capacity():
    picture = demo_picture.Picture(PLAN)
    picture.draw(FRAME, progress=0.1)
    lines = picture.draw(FRAME, progress=1.0)
    text = "\n".join(lines)
    assert "Overload, with headgate" in text
    assert "3 s of 8 s" in text
    assert "limit 15 in flight, 3 waiting" in text
    assert "█" * 44 in text
    assert f"  wanted  {'█' * 60} of 1000/s\n" in text
    assert f"  sent    {'▁' * 60} of 1000/s\n" in text
    assert f"  served  {'█' * 60} of 100/s\n" in text
    assert max(map(len, lines)) <= demo_picture.WIDTH
    assert len(lines) == demo_picture.HEIGHT
    bare = "\n".join(picture.draw(FRAME._replace(fraction=None, limit=None), progress=1.0))
    assert "limit" not in bare
    assert "–" in bare


def test_no_line_is_wider_than_a_terminal(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    plan = Plan(MAX_SECONDS)
    worst = PhaseResult("outage", 9999.0, 100.0, 99.0, 0.0999, 1000, 0.0999)
    late = FRAME._replace(elapsed=MAX_SECONDS, offered=9999.0, sent=9999.0, served=999.0, fraction=0.0999)
    texts = [demo_picture.opening(plan), *map(demo_picture.announcement, PHASES)]
    texts += [demo_picture.result_line(worst), demo_picture.frame_line(late, plan)]
    assert max(len(line) for text in texts for line in text.split("\n")) <= demo_picture.WIDTH


@pytest.mark.parametrize("part", [-1.0, 0.0, 0.001, 0.05, 0.5, 1.0, 99.0])
def test_a_bar_is_never_longer_than_its_scale(part):
    assert len(demo_picture._bar(part)) <= 44
    assert len(demo_picture._bar(part, mark=0.1)) <= 45
