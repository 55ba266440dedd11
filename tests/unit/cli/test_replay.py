import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.cli.replay import replay

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "limit" / "algorithms.json").read_text())["replay"]


def run(*arguments, text=""):
    result = CliRunner().invoke(replay, [*arguments, "-"], input=text)
    assert result.exception is None, result.output
    return result


def log_of(*events):
    return "".join(json.dumps({"time": moment, "identifier": who}) + "\n" for moment, who in events)


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: f"{case['rule']}-{case['algorithm']}-{case['max_delay']}")
def test_the_vectors(case):
    rule = ["--rule", case["rule"], "--algorithm", case["algorithm"], "--max-delay", str(case["max_delay"])]
    report = json.loads(run(*rule, "--json", text=log_of(*case["events"])).stdout)
    held = {row["identifier"]: {"delayed": row["delayed"], "rejected": row["rejected"]} for row in report["top"]}
    expected = dict(case["expect"])
    for name, counts in expected.pop("by_identifier").items():
        assert held.get(name, {"delayed": 0, "rejected": 0}) == counts
    assert {name: report[name] for name in expected} == expected


def test_equal_times_keep_the_order_of_the_file_and_others_are_sorted():
    # In the order of the file the one at 70 would come first, and hold those at 5 and 10.
    text = log_of((70, "a"), (5, "a"), (10, "a"), (10, "a"))
    report = json.loads(run("--rule", "1/min burst 1", "--max-delay", "57", "--json", text=text).stdout)
    assert (report["accepted"], report["delayed"], report["rejected"]) == (1, 2, 1)
    assert report["max_delay"] == 55.0


def test_rejected_requests_leave_no_trace():
    text = log_of(*((moment, "a") for moment in range(0, 61, 5)))
    report = json.loads(run("--rule", "1/min burst 1", "--max-delay", "0", "--json", text=text).stdout)
    assert (report["accepted"], report["rejected"]) == (2, 11)


def test_top_is_sorted_bounded_and_silent_about_who_was_never_held():
    events = [(0, f"i{number:02}") for number in range(12) for _ in range(number + 1)]
    report = json.loads(run("--rule", "1/h burst 1", "--max-delay", "0", "--json", text=log_of(*events)).stdout)
    assert [row["identifier"] for row in report["top"]] == [f"i{number:02}" for number in range(11, 1, -1)]
    assert report["identifiers"] == 12
    report = json.loads(run("--rule", "1/h burst 1", "--json", text=log_of((0, "a"))).stdout)
    assert report["top"] == []


def test_several_rules_all_hold():
    text = log_of(*[(0, "a")] * 5)
    report = json.loads(
        run("--rule", "10/s burst 4", "--rule", "1/s burst 2", "--max-delay", "0", "--json", text=text).stdout
    )
    assert report["accepted"] == 2


def test_malformed_lines_are_counted_apart_and_named_only_when_asked():
    text = "\n  \nnonsense\n" + log_of((0, "a")) + "{}\n"
    quiet = run("--rule", "1/s", "--json", text=text)
    report = json.loads(quiet.stdout)
    assert (report["requests"], report["malformed"]) == (1, 2)
    assert quiet.stderr == ""
    named = run("--rule", "1/s", "--json", "--verbose", text=text)
    assert named.stderr.count("\n") == 2
    assert "-: line 3: " in named.stderr
    assert "nonsense" in named.stderr
    assert "-: line 5: " in named.stderr


def test_a_line_that_is_named_moves_no_cursor():
    named = run(
        "--rule", "1/s", "--verbose", text='{"time":"\x1b[2J"}\n\x1b]0;evil\x07\x85\u202e\r\x0b.\n' + log_of((0, "a"))
    )
    assert named.stderr.count("\n") == 2
    assert named.stderr.replace("\n", "").isprintable()
    assert r"\x1b]0;evil\x07" in named.stderr


def test_the_delay_is_to_the_nearest_millisecond():
    report = json.loads(run("--rule", "3/s burst 1", "--json", text=log_of((0, "a"), (0, "a"))).stdout)
    assert report["max_delay"] == 0.333


def test_people_get_a_table_in_which_nothing_moves_their_cursor():
    text = log_of((0, "\x1b[2Jevil"), (0, "\x1b[2Jevil"))
    shown = run("--rule", "1/s burst 1", text=text).stdout
    assert "\x1b" not in shown
    assert r"\x1b[2Jevil" in shown
    assert "longest delay" in shown
    assert "50.00%" in shown


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_an_empty_log_is_a_report_of_nothing(text):
    report = json.loads(run("--rule", "1/s", "--json", text=text).stdout)
    assert report == {
        "requests": 0, "accepted": 0, "delayed": 0, "rejected": 0, "identifiers": 0, "malformed": 0, "top": [],
        "max_delay": 0.0,
    }  # fmt: skip


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_log_without_a_line_that_can_be_read_is_an_error(form):
    ran = CliRunner().invoke(replay, ["--rule", "1/s", *form, "-"], input="\nnonsense\n{}\n")
    assert ran.exit_code == 1
    assert "malformed" in ran.stdout
    assert ran.stderr.startswith("headgate: -: no valid line; line 2: ")
    assert ran.stderr.endswith(": nonsense\n")
