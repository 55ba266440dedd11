import sys

import pytest

from headgate.errors import ConfigurationError
from headgate.lab.user_class import describe_error, is_user_class, load_user_class

POLICY = "from dataclasses import dataclass\n@dataclass\nclass Mine:\n    size: int = 3\nnumber = 1\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    yield tmp_path / "scenarios"
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_name_with_a_colon_is_that_of_a_class():
    assert is_user_class("mine.py:Mine")
    assert not is_user_class("draft")


def test_a_file_beside_the_scenario_comes_before_one_in_the_working_directory(folder, tmp_path):
    (folder / "mine.py").write_text(POLICY)
    (tmp_path / "elsewhere" / "mine.py").write_text("class Other: pass")
    (tmp_path / "elsewhere" / "other.py").write_text("class Other: pass")
    assert load_user_class("mine.py:Mine", str(folder))().size == 3
    assert load_user_class("other.py:Other", str(folder)).__name__ == "Other"


def test_a_file_is_run_once(folder):
    (folder / "mine.py").write_text(POLICY)
    assert load_user_class("mine.py:Mine", str(folder)) is load_user_class("./mine.py:Mine", str(folder))


def test_a_module_may_be_in_the_working_directory(folder, tmp_path):
    (tmp_path / "elsewhere" / "module_of_a_user.py").write_text(POLICY)
    assert load_user_class("module_of_a_user:Mine", str(folder)).__name__ == "Mine"
    assert "" not in sys.path


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (":Mine", "expected module:Class or file.py:Class"),
        ("mine.py:", "expected module:Class or file.py:Class"),
        ("mine.py:a b", "expected module:Class or file.py:Class"),
        ("missing.py:Mine", "no file 'missing.py' in "),
        ("missing_module:Mine", "no module named 'missing_module'; a file is named with .py"),
        ("mine.py:Min", "no class 'Min' in mine.py; did you mean 'Mine'?"),
        ("mine.py:X", "no class 'X' in mine.py; it has Mine"),
        ("mine.py:number", "'number' is not a class"),
        ("fractions:X", "no class 'X' in fractions; it has "),
        ("this:X", "no class 'X' in this; it has no classes"),
        ("syntax.py:Mine", "SyntaxError: invalid syntax (syntax.py, line 2)"),
        ("fails.py:Mine", "ValueError: of the user ("),
        ("exits.py:Mine", "SystemExit: 3 ("),
    ],
)
def test_what_is_not_a_class_is_an_error_with_the_name_and_the_reason(folder, name, reason):
    (folder / "mine.py").write_text("number = 1\nclass Mine: pass\n")
    (folder / "syntax.py").write_text("class Mine: pass\nclass class:\n")
    (folder / "fails.py").write_text("raise ValueError('of the\\nuser')")
    (folder / "exits.py").write_text("import sys\nsys.exit(3)")
    for _ in range(2):  # a file that fails is not remembered
        with pytest.raises(ConfigurationError) as caught:
            load_user_class(name, str(folder))
        assert str(caught.value).startswith(f"policy {name!r}: ")
        assert reason in str(caught.value)


def test_an_error_without_text_or_traceback_is_described_by_its_type():
    assert describe_error(KeyError()) == "KeyError"
