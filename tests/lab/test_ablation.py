"""The tables of `lab.ablation`, and the comparisons of bench that docs/evidence.md cites, on a small size."""

import re

import pytest

from bench import concurrency_laws, simulated_gate
from lab import ablation
from lab.__main__ import main
from lab.ablation import MECHANISMS, Setup, run
from lab.results import Run


@pytest.fixture
def metrics():
    return lambda name, **keys: run((Setup(seconds=600.0, load=2.0, **MECHANISMS[name] | keys), 0)).metrics


def test_each_mechanism_adds_what_the_page_says(metrics):
    nothing, gate, throttle = (metrics(name) for name in ("nothing", "gate + Retry-After", "throttle"))
    advice, every = metrics("gate + Retry-After + advice"), metrics("all")
    assert nothing["goodput"] < 0.75 < gate["goodput"] < 0.9 < advice["goodput"]
    assert nothing["people"] < 0.5 < throttle["people"] < 0.75 < every["people"]
    assert every["people"] > 0.99
    assert gate["people"] > 0.99


def test_disobedience_pays_and_a_capacity_that_is_too_low_is_left_idle(metrics):
    half = metrics("all", obedient=0.5)
    assert half["agents"] < half["others"]
    assert metrics("all", told=0.7)["goodput"] < 0.75


def test_the_standard_error_of_a_mean():
    two = [Run("", seed, {"goodput": goodput}) for seed, goodput in enumerate((0.1, 0.3))]
    assert (ablation._error("goodput", two), ablation._error("goodput", two[:1])) == (pytest.approx(0.1), 0.0)


@pytest.mark.parametrize("name", ["ablation", "sensitivity"])
def test_a_table_has_a_row_for_each_setup(name, monkeypatch, capsys):
    monkeypatch.setattr(ablation, "SECONDS", 80.0)
    monkeypatch.setattr(ablation, "LOADS", (2.0,))
    monkeypatch.setattr(ablation, "WRONG", {"told": (0.7, 1.3), "obedient": (0.5,), "greedy": (10.0,)})
    assert main([name, "--seeds", "2"]) == 0
    *lines, errors = [line for line in capsys.readouterr().out.splitlines() if line]
    assert len(lines) == {"ablation": 2 * 9, "sensitivity": 1 + 3 * 4}[name]
    assert re.match(r"standard error of a mean, at most: goodput 0\.0[1-9]\d, people 0\.\d+, agents 0\.\d+$", errors)
    assert main([name, "--json"]) == 2
    assert "it has no --set, --case, --json or --plot" in capsys.readouterr().err


def test_the_laws_are_compared_in_drawn_worlds(capsys):
    concurrency_laws.main(2)
    rows = capsys.readouterr().out.splitlines()
    assert [row for row in rows if row.startswith("all (2): aimd, 1 s")]


def test_simulator_and_gate_take_the_same_load(capsys, monkeypatch):
    monkeypatch.setattr(simulated_gate, "LOADS", (0.5,))
    simulated_gate.main(3.0)
    _, simulated, real = (line.split() for line in capsys.readouterr().out.splitlines())
    assert simulated[-2] == real[-2] == "0.000"  # refused
    assert float(simulated[-3]) > 0.3
    assert float(real[-3]) > 0.2
