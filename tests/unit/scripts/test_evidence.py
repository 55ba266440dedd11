"""The page of evidence: its text is made from the committed figures, and those are what the code gives."""

import pytest

from scripts import evidence, evidence_page
from scripts.evidence_page import FOLDER, PAGE_FILE, TEMPLATE_FILE, read_figures, render

MAX_SIZE = 150_000


def test_the_page_is_made_from_the_committed_figures():
    expected = render(read_figures(), TEMPLATE_FILE.read_text(encoding="utf-8"))
    assert PAGE_FILE.read_text(encoding="utf-8") == expected, (
        "run `make evidence`, or `python -m scripts.evidence page`"
    )


def test_the_cheap_figures_are_what_the_code_gives():
    assert evidence.samples() == read_figures()["samples"], "run `make evidence`: the figures are of another version"


def test_every_plot_is_shown_and_small():
    plots = sorted(FOLDER.glob("*.svg"))
    page = PAGE_FILE.read_text(encoding="utf-8")
    assert len(plots) >= 5
    assert [plot.name for plot in plots if f"](evidence/{plot.name})" not in page] == []
    assert [plot.name for plot in plots if plot.stat().st_size > MAX_SIZE] == []


def test_figures_are_found_by_their_path_and_formatted():
    figures = {"runs": {"attack": {"seeds": 100, "share": 0.4567}}}
    template = "{{ runs.attack.seeds }} seeds: {{ runs.attack.share:% }}"
    assert render(figures, template) == "100 seeds: 46 %"
    with pytest.raises(KeyError):
        render(figures, "{{ runs.attack.missing }}")


def tournament(together, other):
    policies = {"together": together, "none": other, "draft": other}
    return {"runs": {f"tournament_{key}": {"policies": policies} for key in evidence_page.CONDITIONS}}


def metrics(value, **changed):
    names = ("goodput", "interactive_success", "heavy_success", "recovery_goodput", "server_load", "local_refusals")
    return dict.fromkeys(names, value) | changed


def test_where_another_policy_is_better_the_page_says_so():
    figures = tournament(metrics(0.9), metrics(0.5, heavy_success=0.95, goodput=0.904))
    table = evidence_page.losses_table(figures)
    assert "| 2× | `heavy_success` | 0.900 | `none` 0.950, `draft` 0.950 |" in table
    assert "goodput" not in table
    assert evidence_page.losses_table(tournament(metrics(0.9), metrics(0.9))) == "Nowhere in these figures."


@pytest.mark.parametrize(("goodput", "verdict"), [(0.95, "yes"), (0.91, "**no**")])
def test_a_target_that_is_missed_is_marked(goodput, verdict):
    figures = tournament(metrics(0.98, goodput=goodput, local_refusals=0.0), metrics(0.3))
    table = evidence_page.targets_table(figures)
    assert f"| `goodput` of `together` at 2× | 0.92 | {goodput:.3f} | {verdict} |" in table


def test_a_case_that_is_not_as_expected_is_marked():
    finding = {"what": "mean of load", "range": "at most 1", "low": 0.9, "high": 1.1, "within": True}
    laws = [
        {"law": "demand", "control": False, "within": True, "findings": [finding]},
        {"law": "ratio", "control": True, "within": True, "findings": [finding]},
    ]
    figures = {"suites": {"outer": [{"name": "step", "as_expected": False, "laws": laws}]}}
    assert (
        "`step` **(not as expected)** | mean of load at most 1 | `demand` 0.900 to 1.100 | `ratio`"
        in evidence_page.suite_table(figures, "outer")
    )
    assert evidence_page.cases_count(figures, "outer") == "0 of 1"


def test_a_figure_that_was_not_measured_is_not_one_that_is_never_reached():
    def rows(low):
        finding = {"what": "mean of x", "range": "at least 1", "low": low, "high": low, "within": False}
        laws = [{"law": "a", "control": True, "within": False, "findings": [finding]}]
        laws.insert(
            0, {"law": "b", "control": False, "within": True, "findings": [finding | {"low": 1.0, "high": 1.0}]}
        )
        figures = {"suites": {"outer": [{"name": "case", "as_expected": True, "laws": laws}]}}
        return render(figures, "{{ table suite outer }}")

    assert "`a` never" in rows(float("inf"))
    assert "`a` not measured" in rows(float("nan"))
