"""The report of `headgate simulate`: tables that fit, labels of lists, and verdicts."""

import msgspec
import pytest

from headgate.cli.simulation_report import failures, report
from headgate.lab.ranges import Expectation, judge
from headgate.lab.results import Result
from headgate.lab.scenario import Scenario

SCENARIO = Scenario(description="Something.", world="ticks", policies=("none",))
RANGE = Expectation("load", at_most=1.0)


@pytest.fixture(autouse=True)
def no_color(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")


def lines(policies, scenario=SCENARIO, **values):
    return list(report(scenario, Result("mine", 2, policies, **values)))


def test_a_narrow_table_has_a_row_for_each_policy():
    assert lines({"none": {"load": 0.12345678, "requests": 12345.6}, "draft": {"load": 1.0, "requests": 999.96}}) == [
        "mine: Something.",
        "The mean of 2 seeds for each policy:",
        "",
        "         load  requests",
        "none   0.1235    12,346",
        "draft       1      1000",
    ]


def test_a_wide_table_has_a_row_for_each_metric():
    table = lines({name: {f"a_metric_with_a_long_name_{n}": n for n in range(5)} for name in ("none", "draft")})[3:]
    assert table[0].split() == ["none", "draft"]
    assert [row.split() for row in table[1:]] == [[f"a_metric_with_a_long_name_{n}", str(n), str(n)] for n in range(5)]


def test_a_metric_that_a_policy_lacks_is_a_dash():
    assert lines({"none": {"load": 1.0}, "advice": {"load": 1.0, "fetches": 2.0}})[4:] == [
        "none       1        –",
        "advice     1        2",
    ]


class Trial(msgspec.Struct):
    downtime: int
    interval: float


class Trials(Scenario, frozen=True, kw_only=True):
    trials: tuple[Trial, ...]


def test_a_list_has_a_row_for_each_element_with_the_keys_of_its_table():
    scenario = Trials(description="Trials.", world="ticks", trials=(Trial(10, 0.5), Trial(300, 1.0)))
    policies = {"none": {"ratio": 1.0, "trials": [1.0, 2.0, 3.0]}, "draft": {"ratio": 1.0, "trials": [1.0, 2.5, 3.0]}}
    assert lines(policies, scenario)[6:] == [
        "",
        "trials:",
        "                           none  draft",
        "downtime 10, interval 0.5     1      1",
        "downtime 300, interval 1      2    2.5",
        "3                             3      3",
    ]


def test_each_range_has_a_line_and_the_control_an_explanation():
    findings = {"none": (judge(RANGE, [2.0, 0.5]),), "draft": (judge(RANGE, [1.0, 0.5]),)}
    policies = {"none": {"load": 1.0}, "draft": {"load": 1.0}}
    assert lines(policies, findings=findings, control="none")[7:] == [
        "none   OUTSIDE  load is 2 in 1 of 2 seeds; expected at most 1",
        "draft  ok       load is 0.5 to 1; expected at most 1",
        "none   is the control, which has to be outside of a range",
    ]


def test_failures_are_ranges_that_do_not_hold_and_controls_within_theirs():
    good, bad = (judge(RANGE, [0.5]),), (judge(RANGE, [2.0]),)
    as_expected = Result("one", 1, {}, findings={"draft": good, "none": bad}, control="none")
    not_expected = Result("two", 1, {}, findings={"draft": bad, "none": good}, control="none")
    assert list(failures([as_expected])) == []
    assert list(failures([as_expected, not_expected])) == [
        "two: draft: load is 2; expected at most 1",
        "two: none is the control and within all ranges, so they do not tell a good policy from a bad one",
    ]


def test_names_from_a_file_cannot_move_the_cursor():
    scenario = Scenario(description="a\x1b[2Jb", world="ticks", policies=("none",))
    findings = {"\x1b[2J": (judge(RANGE, [0.5]),)}
    policies = {"\x1b[2J": {"load": 1.0, "trials": [1.0]}}
    assert "\x1b" not in "".join(lines(policies, scenario, findings=findings))
    assert r"a\x1b[2Jb" in lines(policies, scenario)[0]
