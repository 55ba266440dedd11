import pytest

from headgate.errors import ConfigurationError
from headgate.lab.events.catalogue import make_law
from headgate.lab.scenario_file import FOLDER, parse_scenario


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("gatekeepers", {}, "laws.gatekeepers: object missing required field `rule`"),
        ("gatekeepers", {"rule": "ten"}, "laws.gatekeepers: invalid rule 'ten'"),
        ("gatekeepers", {"rule": "1/s", "batch_delay": 1.0}, "laws.gatekeepers: batch_delay: 1 s is a part"),
        ("fixed", {"limits": 1}, "laws.fixed: object contains unknown field `limits`"),
        ("fixed", {"limit": 0}, "laws.fixed: expected `int` >= 1"),
        ("concurrency", {"max": 0}, "laws.concurrency: concurrency: max must be from 1"),
        ("concurrency", {"limit": 20}, "laws.concurrency: object contains unknown field `limit`"),
        ("learnt", {}, "unknown law 'learnt'; expected one of none, fixed, concurrency, aimd, gradient"),
    ],
)
def test_invalid_laws_are_errors(name, settings, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        make_law(name, settings, lambda: 0.0)


def test_a_law_of_your_own(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from headgate.lab.events.laws import FixedLimit\nclass Mine(FixedLimit):\n    pass\n"
    )
    made = make_law("mine.py:Mine", {"limit": 7}, lambda: 0.0, folder=str(tmp_path))
    assert made.signals()["limit"] == 7.0


def test_a_law_under_another_name():
    assert make_law("tight", {"law": "fixed", "limit": 3}, lambda: 0.0).signals()["limit"] == 3.0
    with pytest.raises(ConfigurationError, match="unknown law 'tight'"):
        make_law("tight", {"limit": 3}, lambda: 0.0)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("NoSettings", r"law 'mine.py:NoSettings': the class needs its settings as `Settings`"),
        ("Fails", r"law 'mine.py:Fails': ValueError: of the user \(.*mine.py, line 6, in __init__\)"),
        ("Missing", r"no class 'Missing' in mine.py; "),
    ],
)
def test_a_class_that_is_not_a_law_is_found_before_the_first_run(tmp_path, name, sentence):
    (tmp_path / "mine.py").write_text(
        "from headgate.lab.scenario import Section\n"
        "class NoSettings: pass\n"
        "class Fails:\n"
        "    class Settings(Section, frozen=True): pass\n"
        "    def __init__(self, settings, draw):\n"
        "        raise ValueError('of the user')\n"
    )
    text = (FOLDER / "inner" / "knee.toml").read_text()
    with pytest.raises(ConfigurationError, match=sentence):
        parse_scenario(text, tmp_path / "knee.toml", ["laws={}", f"law=mine.py:{name}"])
