import math

import pytest

from headgate.lab.ranges import Expectation, Finding, judge
from headgate.lab.results import NO_SERIES, Result, Run, Series, mean_metrics, mean_series, quantile_series, thin


def test_metrics_are_averaged_over_runs_and_lists_by_element():
    runs = [Run("none", 0, {"a": 1.0, "trials": [1.0, 4.0]}), Run("none", 1, {"a": 2.0, "trials": [3.0, 0.0]})]
    assert mean_metrics(runs) == {"a": 1.5, "trials": [2.0, 2.0]}


def test_series_are_averaged_at_each_time_without_missing_values():
    first = Series([0.0, 1.0, 2.0], {"load": [1.0, math.nan, math.nan]})
    result = mean_series([first, Series([0.0, 1.0, 2.0], {"load": [3.0, 5.0, math.nan]})])
    assert result.times == [0.0, 1.0, 2.0]
    assert result.values["load"][:2] == [2.0, 5.0]
    assert math.isnan(result.values["load"][2])


def test_the_mean_of_no_series_is_empty():
    assert mean_series([]) == NO_SERIES


def test_quantiles_of_series_are_interpolated_and_leave_out_missing_values():
    series = [Series([0.0, 1.0], {"load": [value, math.nan]}) for value in (4.0, 1.0, 3.0, 2.0, 5.0)]
    series.append(Series([0.0, 1.0], {"load": [math.nan, 7.0]}))
    assert quantile_series(series, 0.25).values["load"] == [2.0, 7.0]
    assert quantile_series(series, 0.1).values["load"] == [1.4, 7.0]


def found(*, within: bool) -> tuple[Finding, ...]:
    return (
        judge(Expectation("goodput", at_least=0.5), [0.9]),
        judge(Expectation("goodput", at_least=0.5), [0.9 * within]),
    )


@pytest.mark.parametrize(
    ("first", "control", "as_expected"),
    [(True, False, True), (True, True, False), (False, False, False), (False, True, False)],
)
def test_a_result_is_as_expected_if_the_control_alone_leaves_its_ranges(first, control, as_expected):
    findings = {"law": found(within=first), "naive": found(within=control)}
    result = Result("name", 1, {}, findings=findings, control="naive")
    assert (result.within("law"), result.within("naive")) == (first, control)
    assert result.as_expected is as_expected


def test_a_result_without_expectations_is_as_expected():
    assert Result("name", 1, {"none": {}}, control="none").as_expected


def test_a_thin_series_has_the_means_of_neighbours():
    series = Series([0.0, 1.0, 2.0, 3.0, 4.0], {"load": [1.0, 3.0, math.nan, 5.0, 9.0], "none": [math.nan] * 5})
    thinned = thin(series, 3)
    assert thinned.times == [0.5, 2.5, 4.0]
    assert thinned.values["load"] == [2.0, 5.0, 9.0]
    assert all(math.isnan(value) for value in thinned.values["none"])
    assert thin(series, 5).times == series.times
    assert thin(NO_SERIES, 5) == NO_SERIES
