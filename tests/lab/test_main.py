"""`python -m lab` on small scenarios: what it prints, its exit codes, and its errors."""

import json
import os

import pytest

from lab.__main__ import main

SCENARIO = """\
description = "Two loads at a server."
world = "events"
seeds = 2
policies = ["none", "fixed"]
seconds = 20.0

[laws.fixed]
limit = 1

[station]
servers = 1

[[loads]]
name = "people"
load = 1.5
"""
WITHIN = '[[expect]]\nsignal = "refused"\nat_most = 9.0\n'
OUTSIDE = '[[expect]]\nsignal = "refused"\nat_most = 0.0\n'
ROWS = '[[cases]]\nname = "first"\n[[cases]]\nname = "second"\npolicies = ["none"]\ncontrol = "fixed"\n'


@pytest.fixture
def lab(capsys, tmp_path, monkeypatch):
    """Run the program in this process alone; a scenario of several lines is written to a file first."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})

    def run(*arguments):
        given = list(map(str, arguments))
        if "\n" in given[0]:
            path = tmp_path / "mine.toml"
            path.write_text(given[0])
            given[0] = str(path)
        code = main(given)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def test_json_has_the_mean_of_each_metric_by_law(lab, monkeypatch):
    with monkeypatch.context() as several_processes:
        several_processes.setattr(os, "sched_getaffinity", lambda _: {0, 1})
        code, out, err = lab(SCENARIO, "--json")
    document = json.loads(out)
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert (document["scenario"], document["seeds"], list(document["policies"])) == ("mine", 2, ["none", "fixed"])
    each = [
        json.loads(lab(SCENARIO, "--json", "--set", f"seeds=[{seed}]")[1])["policies"]["fixed"]["goodput"]
        for seed in (0, 1)
    ]
    assert document["policies"]["fixed"]["goodput"] == pytest.approx(sum(each) / 2)
    assert each[0] != each[1]


def test_the_report_is_a_table_of_metrics_and_lists_have_one_of_their_own(lab):
    code, out, _ = lab(SCENARIO)
    lines = out.splitlines()
    assert (code, lines[0], lines[1]) == (0, "mine: Two loads at a server.", "The mean of 2 seeds:")
    assert lines[3].split() == ["none", "fixed"]
    assert [line.split()[0] for line in lines[4:6]] == ["offered", "goodput"]
    code, out, _ = lab("downtime", "--seeds", 1)
    lines = out.splitlines()
    assert lines[3].split() == ["perceived_downtime_ratio"]
    assert lines[8].split() == ["trials", "none", "draft", "chromium"]
    assert len(lines) == 9 + 18


@pytest.mark.parametrize(
    ("expect", "control", "code", "verdict"),
    [
        (WITHIN, "", 0, "fixed  ok       refused is "),
        (OUTSIDE, "", 1, "fixed  OUTSIDE  refused is "),
        (OUTSIDE, 'control = "fixed"', 0, "fixed  is the control, and outside"),
        (WITHIN, 'control = "fixed"', 1, "fixed  is the control, and within all ranges, which therefore judge nothing"),
    ],
)
def test_the_exit_code_says_whether_values_are_in_their_ranges(lab, expect, control, code, verdict):
    text = f"{control}\n{SCENARIO}{expect}"
    ended, out, _ = lab(text)
    assert ended == code
    assert verdict in out
    ended, out, err = lab(text, "--json")
    assert ended == code
    assert json.loads(out)["policies"].keys() == {"none", "fixed"}
    assert bool(err) == bool(code)


def test_a_file_with_rows_is_a_suite(lab):
    code, out, _ = lab(SCENARIO + OUTSIDE + ROWS, "--json")
    found = [(case["name"], case["law"], case["control"], case["within"]) for case in json.loads(out)["cases"]]
    assert code == 1
    assert found == [
        ("first", "none", False, True),
        ("first", "fixed", False, False),
        ("second", "none", False, True),
        ("second", "fixed", True, False),
    ]
    lines = lab(SCENARIO + OUTSIDE + ROWS)[1].splitlines()
    assert lines[0] == "FAILED    first   Two loads at a server."
    assert lines[2].startswith("          fixed  OUTSIDE  refused is ")
    assert lines[3] == "ok        second  Two loads at a server."
    code, out, _ = lab(SCENARIO + OUTSIDE + ROWS, "--case", "second")
    assert (code, out.splitlines()[0]) == (0, "second: Two loads at a server.")


def test_a_law_of_your_own_stands_in_a_file_beside_the_scenario(lab, tmp_path):
    (tmp_path / "own.py").write_text("from lab.events.laws import NoLimit\nclass Mine(NoLimit):\n    pass\n")
    policies = json.loads(lab(SCENARIO.replace('"none"', '"none", "own.py:Mine"'), "--json")[1])["policies"]
    assert policies["own.py:Mine"] == policies["none"]


def test_an_error_in_a_law_names_law_and_seed(lab, tmp_path):
    law = "class Mine(NoLimit):\n    def arrived(self, request, *, now):\n        1 / 0\n"
    (tmp_path / "own.py").write_text("from lab.events.laws import NoLimit\n" + law)
    code, _, err = lab(SCENARIO.replace('"none"', '"own.py:Mine"'))
    assert (code, err) == (1, "lab: law 'own.py:Mine', seed 0: ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("atack",), "no scenario 'atack'; expected one of the names that `python -m lab` lists, or ./FILE.toml"),
        (("./missing.toml",), "missing.toml: No such file or directory"),
        (("attack", "--set", "load=2"), "attack is as it was published: it has no --set"),
        (("inner", "--case", "nix"), "no case 'nix'; the cases are"),
        (("outer", "--plot", "a.svg"), "--plot: name one scenario of the suite with --case"),
        ((SCENARIO, "--plot", "/nix/a.svg"), "/nix/a.svg: "),
        ((SCENARIO, "--plot", "/tmp/a.nix"), "a.nix: "),
    ],
)
def test_invalid_use_is_one_sentence(lab, arguments, reason):
    code, out, err = lab(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert reason in err
