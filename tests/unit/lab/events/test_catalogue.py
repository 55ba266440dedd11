import pytest

from headgate.errors import ConfigurationError
from headgate.lab.events.catalogue import make_law


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("gatekeepers", {}, "laws.gatekeepers: object missing required field `rule`"),
        ("gatekeepers", {"rule": "ten"}, "laws.gatekeepers: invalid rule 'ten'"),
        ("gatekeepers", {"rule": "1/s", "batch_delay": 1.0}, "laws.gatekeepers: batch_delay: 1 s is a part"),
        ("fixed", {"limits": 1}, "laws.fixed: object contains unknown field `limits`"),
        ("fixed", {"limit": 0}, "laws.fixed: expected `int` >= 1"),
        ("learnt", {}, "unknown law 'learnt'; expected one of none, fixed, gatekeepers"),
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
