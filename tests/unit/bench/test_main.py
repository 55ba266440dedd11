from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from bench import __main__ as program
from bench.measure import Absent, Row, Void

ROW = Row("one decision", "limits, in memory", 0.1234, "≤", 0.2, "410 ns against 3.3 µs")


@pytest.fixture
def outcomes(monkeypatch):
    outcomes: dict[str, object] = {}

    def measure(name: str) -> list[Row]:
        outcome = outcomes[name.removeprefix("bench.bench_")]
        if isinstance(outcome, Exception):
            raise outcome
        return [outcome]

    monkeypatch.setattr(program, "names", lambda: list(outcomes))
    benchmark = SimpleNamespace(import_module=lambda name: SimpleNamespace(run=lambda rounds: measure(name)))
    monkeypatch.setattr(program, "importlib", benchmark)
    return outcomes


def test_a_row_is_printed_with_ratio_bound_and_figures(outcomes) -> None:
    outcomes["decision"] = ROW
    done = CliRunner().invoke(program.main, [])
    assert done.exit_code == 0
    (line,) = [line for line in done.stdout.splitlines() if "one decision" in line]
    assert [cell.strip() for cell in line.strip("│").split("│")] == [
        "one decision",
        "limits, in memory",
        "0.12",
        "≤ 0.2",
        "yes",
        "410 ns against 3.3 µs",
    ]


def test_a_void_result_fails_the_run_but_not_the_others(outcomes) -> None:
    outcomes |= {"gateway": Void("the sink read nothing"), "decision": ROW}
    done = CliRunner().invoke(program.main, [])
    assert done.exit_code == 1
    assert "gateway: void: the sink read nothing" in done.stderr
    assert "one decision" in done.stdout


def test_a_missing_peer_is_reported_and_fails_nothing(outcomes) -> None:
    outcomes["gateway"] = Absent("nginx is missing")
    done = CliRunner().invoke(program.main, [])
    assert done.exit_code == 0
    assert "gateway: not measured: nginx is missing" in done.stderr


def test_an_unknown_name_is_an_error_with_the_known_names(outcomes) -> None:
    outcomes |= {"gateway": ROW, "decision": ROW}
    done = CliRunner().invoke(program.main, ["gatway"])
    assert done.exit_code == 2
    assert "gatway; there are: gateway, decision" in done.stderr
