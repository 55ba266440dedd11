import math
import re
import subprocess
import sys
from xml.etree import ElementTree

import msgspec
import pytest

from headgate.errors import ConfigurationError, MissingExtra
from headgate.lab import plots
from headgate.lab.charts import CAPACITY, Line, Panel, Shade
from headgate.lab.plots import check_plot_file, draw, outages_of, plot, spread_apart
from headgate.lab.results import Result, Series
from headgate.lab.ticks.settings import Metered, TickScenario

PANEL = Panel(
    "Load",
    "time in s",
    "multiple of capacity",
    (
        Line("none", [0.0, 1.0, 2.0], [4.0, 4.1, 4.2], [3.9, 4.0, 4.1], [4.1, 4.2, 4.3], "4.1"),
        Line("my_policy", [0.0, 1.0, 2.0], [0.9, math.nan, math.nan]),
    ),
    (CAPACITY,),
    (Shade(0.5, 1.5, "outage"),),
)


@pytest.fixture
def measured():
    times = [float(second) for second in range(30)]
    series = {policy: Series(times, {"load": [height] * 30}) for policy, height in (("none", 4.0), ("draft", 0.9))}
    return Result("case", 2, {}, series, recorded=2)


@pytest.fixture
def scenario():
    """An outage from 10 s to 25 s."""
    return TickScenario(
        description="A shop in an outage.", world="ticks", policies=("none",), ticks=20, tick=1.0, outage=15.0
    )


def words(svg):
    return [element.text.strip() for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_a_plot_names_its_axes_lines_levels_and_shades_in_text():
    shown = words(draw([PANEL], title="Twice the capacity", caption="2 seeds"))
    assert {"Twice the capacity", "2 seeds", "Load", "time in s", "multiple of capacity"} <= set(shown)
    assert {"none 4.1", "my_policy", "capacity", "outage"} <= set(shown)


def test_the_same_values_give_the_same_bytes_without_a_date():
    first, second = (draw([PANEL], title="Same") for _ in range(2))
    assert first == second
    assert b"date" not in first.lower()


def test_points_of_an_svg_have_one_decimal_and_keep_their_order():
    many = Line("none", [float(x) for x in range(50)], [float(x % 7) for x in range(50)])
    svg = draw([Panel("Load", "s", "1", (many,))], title="Many").decode()
    path = max(re.findall(r' d="([^"]*)"', svg), key=len)
    numbers = [float(number) for number in re.findall(r"-?[\d.]+", path)]
    assert not re.search(r"\.\d\d", path)
    assert len(numbers) == 100
    assert numbers[::2] == sorted(numbers[::2])


def test_a_logarithmic_axis_has_the_given_ticks():
    line = Line("together", [2.0, 8.0, 2000.0], [0.9, 0.98, 0.95])
    panel = Panel("Goodput", "load", "multiple of capacity", (line,), x_ticks=(3.0, 30.0, 1000.0))
    shown = words(draw([panel], title="By load"))
    assert [text for text in shown if text.replace(",", "").isdigit() and int(text.replace(",", "")) > 1] == [
        "3",
        "30",
        "1,000",
    ]


@pytest.mark.parametrize(("suffix", "start"), [("svg", b"<?xml"), ("PNG", b"\x89PNG")])
def test_the_suffix_selects_the_format(measured, scenario, tmp_path, suffix, start):
    file = tmp_path / f"out.{suffix}"
    plot(measured, str(file), scenario)
    assert file.read_bytes().startswith(start)


def test_the_plot_of_a_scenario_has_its_description_as_title_and_shades_its_outage(measured, scenario, tmp_path):
    plot(measured, str(tmp_path / "out.svg"), scenario)
    shown = words((tmp_path / "out.svg").read_bytes())
    assert {"A shop in an outage", "outage", "none 4.0", "draft 0.90"} <= set(shown)
    assert any(text.startswith("Mean of 2 seeds") for text in shown)
    assert outages_of(scenario) == [Shade(10.0, 25.0, "outage")]
    assert outages_of(msgspec.structs.replace(scenario, outage=0.0)) == []


def test_outages_of_single_origins_are_shaded_with_their_names(scenario):
    origins = (Metered(name="shop", capacity=1.0, outages=((2.0, 3.0), (5.0, 7.0))), Metered(name="blog", capacity=1.0))
    shaded = outages_of(msgspec.structs.replace(scenario, outage=0.0, origins=origins))
    assert shaded == [Shade(2.0, 3.0, "shop down"), Shade(5.0, 7.0, "shop down")]


def test_a_long_title_is_wrapped():
    assert "word " * 15 + "word" not in words(draw([PANEL], title="word " * 30))


@pytest.mark.parametrize(("file", "found"), [("out.pdf", ".pdf"), ("out", "no suffix")])
def test_another_suffix_is_an_error_that_names_what_is_expected(file, found):
    with pytest.raises(ConfigurationError, match=f"{file}: .*{found}; expected .svg or .png"):
        check_plot_file(file)


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match="extra 'lab'"):
        check_plot_file("out.svg")


def test_matplotlib_is_imported_only_to_draw():
    code = "import sys, headgate.lab.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_file_that_cannot_be_written_is_an_error(measured, scenario, tmp_path):
    with pytest.raises(ConfigurationError, match="No such file or directory"):
        plot(measured, str(tmp_path / "missing" / "out.svg"), scenario)


def test_a_result_without_series_is_an_error(scenario, tmp_path):
    with pytest.raises(ConfigurationError, match="case: the scenario records nothing"):
        plot(Result("case", 2, {}), str(tmp_path / "out.svg"), scenario)


def test_built_in_policies_differ_in_colour_or_in_dashes():
    styles = [(style.color, style.dashes) for style in plots._STYLES.values()]
    assert len(set(styles)) == len(styles)
    assert len({style.dashes for style in plots._OTHER_STYLES}) == len(plots._OTHER_STYLES)


@pytest.mark.parametrize(
    ("positions", "placed"),
    [
        ([], []),
        ([0.2, 0.8], [0.2, 0.8]),
        ([0.5, 0.5], [0.55, 0.45]),
        ([0.5, 0.52, 0.9], [0.46, 0.56, 0.9]),
        ([0.0, 0.0, 0.05], [0.1, 0.0, 0.2]),
        ([1.0, 0.99], [1.0, 0.9]),
        ([0.6, 0.5, 0.4, 0.58, 0.42], [0.7, 0.5, 0.3, 0.6, 0.4]),
    ],
)
def test_labels_keep_their_order_and_a_distance(positions, placed):
    assert spread_apart(positions, 0.1) == pytest.approx(placed)
