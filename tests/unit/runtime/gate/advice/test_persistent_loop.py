"""The advice loop with its file: the wall clock matters only for how old the file is."""

import asyncio
from pathlib import Path

import pytest

from headgate.config.advice_section import AdviceSection
from headgate.runtime.gate.advice.persistent_loop import PersistentLoop
from headgate.runtime.gate.advice.state_file import SavedAdvice, StateFile

WALL = 1_700_000_000.0


def loop_at(path: Path, *, now: float, wall: float) -> PersistentLoop:
    section = AdviceSection(mode="adaptive", capacity="100/s", state=str(path))
    return PersistentLoop(section, workers=1, now=now, log=lambda _message: None, wall=lambda: wall)


def restored(path: Path, *, wall: float) -> bool:
    return b'"fraction":0.25' in loop_at(path, now=5.0, wall=wall).publication.document


@pytest.mark.parametrize(
    ("later", "is_restored"),
    [
        pytest.param(0.0, True, id="at once"),
        pytest.param(1_199.0, True, id="within two max-ages"),
        pytest.param(1_202.0, False, id="too old"),
        pytest.param(-3_600.0, True, id="the clock was set back"),
    ],
)
def test_the_file_has_wall_clock_time(tmp_path: Path, later: float, is_restored: bool) -> None:
    path = tmp_path / "state"
    StateFile(str(path), lambda _message: None).write(SavedAdvice(saved=WALL, fractions={"*": 0.25}))
    assert restored(path, wall=WALL + later) == is_restored


def test_a_state_is_saved_after_each_decision(tmp_path: Path) -> None:
    path = tmp_path / "state"
    decides = loop_at(path, now=1_000.0, wall=WALL)
    asyncio.run(decides.tick_and_save(now=1_059.0))
    assert not path.exists()
    asyncio.run(decides.tick_and_save(now=1_060.0))
    saved = StateFile(str(path), lambda _message: None).read()
    assert saved is not None
    assert saved.saved == WALL
