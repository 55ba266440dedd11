import math

import pytest

from headgate.lab.charts import CAPACITY, MAX_POINTS, Shade, format_value, panels_over_time
from headgate.lab.results import Result, Series


def result(series, low=None, high=None):
    return Result("case", 3, {}, series, low or {}, high or {})


def constant(length, **values):
    return Series(
        [float(second) for second in range(length)], {name: [value] * length for name, value in values.items()}
    )


def test_each_signal_has_a_panel_known_signals_first_and_a_line_for_each_policy():
    panels = panels_over_time(result({"none": constant(3, other_one=1.0, load=4.0), "draft": constant(3, load=0.5)}))
    assert [panel.y_label for panel in panels] == ["multiple of capacity", "other_one"]
    assert panels[0].levels == (CAPACITY,)
    assert [(line.label, line.note, list(line.y)) for line in panels[0].lines] == [
        ("none", "4.0", [4.0, 4.0, 4.0]),
        ("draft", "0.50", [0.5, 0.5, 0.5]),
    ]
    assert [line.label for line in panels[1].lines] == ["none"]


def test_a_signal_of_one_of_several_origins_is_shown_as_the_signal_is():
    series = constant(3, other=1.0, shop_load=2.0, holds=1.0, blog_load=1.0)
    panels = panels_over_time(result({"none": series}))
    assert [panel.title for panel in panels] == [
        "shop: load: requests that reach the server",
        "blog: load: requests that reach the server",
        "Holds: agents whose policy makes them wait",
        "other",
    ]
    assert panels[0].levels == (CAPACITY,)


def test_signals_are_selected_and_ordered():
    panels = panels_over_time(
        result({"none": constant(3, load=1.0, holds=2.0, goodput=3.0)}), signals=("holds", "load", "absent")
    )
    assert [panel.lines[0].y[0] for panel in panels] == [2.0, 1.0]


def test_a_policy_without_values_of_a_signal_has_no_line_and_a_signal_without_lines_no_panel():
    without, some = constant(3, load=1.0, fraction=math.nan), constant(3, load=1.0, fraction=0.5)
    panels = panels_over_time(result({"none": without, "advice": some}))
    assert [[line.label for line in panel.lines] for panel in panels] == [["none", "advice"], ["advice"]]
    assert len(panels_over_time(result({"none": without}))) == 1


@pytest.mark.parametrize(
    ("span", "unit", "last"), [(600, "s", 600.0), (601, "min", 601 / 60), (14400, "min", 240.0), (18000, "h", 5.0)]
)
def test_the_unit_of_time_fits_the_span_and_shades_are_scaled_to_it(span, unit, last):
    series = Series([0.0, float(span)], {"load": [1.0, 1.0]})
    (panel,) = panels_over_time(result({"none": series}), shades=[Shade(span / 2, span, "outage")])
    assert panel.x_label == f"time in {unit}"
    assert panel.lines[0].x[-1] == pytest.approx(last)
    assert panel.shades == (Shade(pytest.approx(last / 2), pytest.approx(last), "outage"),)


def test_the_spread_is_shown_only_if_there_is_one():
    mean, low, high = (
        constant(4, load=2.0, holds=2.0),
        constant(4, load=1.0, holds=2.0),
        constant(4, load=3.0, holds=2.0),
    )
    load, holds = panels_over_time(result({"none": mean}, {"none": low}, {"none": high}))
    assert (load.lines[0].low, load.lines[0].high) == ([1.0] * 4, [3.0] * 4)
    assert (holds.lines[0].low, holds.lines[0].high) == ((), ())


def test_a_signal_that_is_always_zero_has_no_panel():
    panels = panels_over_time(result({"none": constant(3, load=1.0, late=0.0), "draft": constant(3, load=0.0)}))
    assert [[line.note for line in panel.lines] for panel in panels] == [["1.00", "0"]]


def test_nothing_recorded_gives_no_panels():
    assert panels_over_time(result({"none": Series()})) == []


def test_many_lines_share_the_points_of_a_picture():
    signals = {f"signal{number}": 1.0 for number in range(10)}
    panels = panels_over_time(result({f"policy{number}": constant(1000, **signals) for number in range(8)}))
    assert 0 < sum(len(line.y) for panel in panels for line in panel.lines) <= MAX_POINTS


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.034, "0.03"), (1.994, "1.99"), (1.996, "2.0"), (9.96, "10"), (1234.5, "1,234")]
)
def test_values_have_two_to_three_digits(value, text):
    assert format_value(value) == text
