import json

import pytest
from click.testing import CliRunner

from experiments import over_admission
from experiments.bus_simulation import evenly, in_bursts, permitted, randomly, simulate
from experiments.over_admission import Case, Point, curves, main, plot, published
from headgate.lab.events.bus import BusSettings
from headgate.limit import Rule

PUBLISHED = Rule.parse("500/s burst 50")
LOADS = {
    "even": evenly(800.0, 30.0, 2),
    "bursts of 20": in_bursts(800.0, 30.0, 2, 20),
    "random": randomly(800.0, 30.0, 2, 0),
}


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(over_admission, "CURVES", Case("10/s burst 2", 16.0, 2.0))
    monkeypatch.setattr(over_admission, "PUBLISHED", Case("10/s burst 2", 8.0, 2.0))
    monkeypatch.setattr(over_admission, "DELAYS", (0.05, 0.5))
    monkeypatch.setattr(over_admission, "GATEKEEPERS", (1, 2))


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize(("delay", "batch"), [(0.0, 0.0), (0.005, 0.005), (0.02, 0.0), (0.05, 0.005)])
@pytest.mark.parametrize("max_delay", [0.0, 5.0])
def test_gcra_admits_what_the_rule_permits_in_the_published_case(load, delay, batch, max_delay):
    """Two gatekeepers, 500/s burst 50, 800/s offered for 30 s, a control delay of at most 50 ms: within 2 %."""
    outcome = simulate(BusSettings(PUBLISHED, "gcra", 2, delay, batch, max_delay), LOADS[load])
    assert outcome.admitted(30.0) == pytest.approx(permitted(PUBLISHED, 30.0), rel=0.02)


def test_log_admits_everything_if_its_hold_is_shorter_than_the_control_delay():
    assert simulate(BusSettings(PUBLISHED, "log", 2, 0.05), LOADS["even"]).rejected == 0


@pytest.mark.usefixtures("small")
def test_curves_have_the_formula_and_simulated_points():
    points = list(curves(over_admission.CURVES))
    assert len(points) == 3 * 2 * 2 * 3
    gcra = [point for point in points if (point.algorithm, point.gatekeepers) == ("gcra", 2)]
    assert [point.excess for point in gcra if point.source == "formula"] == pytest.approx([1.6, 16.0])
    assert [point.excess for point in gcra if point.source == "even"] == pytest.approx([1.6, 16.0], abs=1.5)


@pytest.mark.usefixtures("small")
def test_the_published_case_is_compared_with_the_rule():
    rows = {(algorithm, local): row for algorithm, local, row in published()}
    assert len(rows) == 9
    assert all(len(row) == 2 for row in rows.values())
    assert rows["log", "nothing"][1] > 30.0 > rows["gcra", "nothing"][0]


@pytest.mark.usefixtures("small")
def test_the_plot_shows_each_algorithm(tmp_path):
    file = tmp_path / "curves.svg"
    plot(list(curves(over_admission.CURVES)), over_admission.CURVES, file)
    text = file.read_text()
    assert all(f">{word}<" in text for word in ("gcra", "smockron", "log", "control delay in ms"))
    plot(list(curves(over_admission.CURVES)), over_admission.CURVES, tmp_path / "again.svg")
    assert text == (tmp_path / "again.svg").read_text()


@pytest.mark.usefixtures("small")
def test_the_command_prints_tables_json_or_a_plot(tmp_path, monkeypatch):
    measured = tmp_path / "measured.json"
    monkeypatch.setattr(over_admission, "MEASURED", measured)
    table = CliRunner().invoke(main, [])
    assert (table.exit_code, "gcra        1 formula" in table.stdout, "spaced controls" in table.stdout) == (
        0,
        True,
        True,
    )
    measured.write_text(
        json.dumps(
            [{"algorithm": "gcra", "gatekeepers": 1, "control_delay": 0.05, "excess": 2.0, "source": "measured"}]
        )
    )
    printed = CliRunner().invoke(main, ["--json"])
    assert Point("gcra", 1, 0.05, 2.0, "measured") in [Point(**point) for point in json.loads(printed.stdout)]
    drawn = CliRunner().invoke(main, ["--plot", str(tmp_path / "curves.svg")])
    assert (drawn.exit_code, drawn.stdout) == (0, "")
    assert (tmp_path / "curves.svg").exists()
