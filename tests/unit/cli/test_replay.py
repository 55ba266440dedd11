import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.cli.replay import replay
from headgate.errors import ConfigurationError


def run(*arguments, text=""):
    result = CliRunner().invoke(replay, [*arguments, "-"], input=text)
    assert result.exception is None, result.output
    return result


def log_of(*events):
    return "".join(json.dumps({"time": moment, "identifier": who}) + "\n" for moment, who in events)


def test_equal_times_keep_the_order_of_the_file_and_others_are_sorted():
    # In the order of the file the one at 70 would come first, and hold those at 5 and 10.
    text = log_of((70, "a"), (5, "a"), (10, "a"), (10, "a"))
    report = json.loads(run("--rule", "1/min burst 1", "--max-delay", "57", "--json", text=text).stdout)
    assert (report["accepted"], report["delayed"], report["rejected"]) == (1, 2, 1)
    assert report["max_delay"] == 55.0


def test_rejected_requests_are_not_counted_by_the_rule():
    text = log_of(*((moment, "a") for moment in range(0, 61, 5)))
    rules = "--rule", "10/s burst 4", "--rule", "1/min burst 1"  # all of them apply
    report = json.loads(run(*rules, "--max-delay", "0", "--json", text=text).stdout)
    assert (report["accepted"], report["rejected"]) == (2, 11)


def test_top_has_the_ten_identifiers_held_most_often():
    events = [(0, f"i{number:02}") for number in range(12) for _ in range(number + 1)]
    report = json.loads(run("--rule", "1/h burst 1", "--max-delay", "0", "--json", text=log_of(*events)).stdout)
    assert [row["identifier"] for row in report["top"]] == [f"i{number:02}" for number in range(11, 1, -1)]
    assert report["identifiers"] == 12
    report = json.loads(run("--rule", "1/h burst 1", "--json", text=log_of((0, "a"))).stdout)
    assert report["top"] == []


def test_malformed_lines_are_counted_and_printed_only_with_verbose():
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


def test_a_printed_line_has_no_control_characters():
    named = run(
        "--rule", "1/s", "--verbose", text='{"time":"\x1b[2J"}\n\x1b]0;evil\x07\x85\u202e\r\x0b.\n' + log_of((0, "a"))
    )
    assert named.stderr.count("\n") == 2
    assert named.stderr.replace("\n", "").isprintable()
    assert r"\x1b]0;evil\x07" in named.stderr


def test_the_delay_is_to_the_nearest_millisecond():
    report = json.loads(run("--rule", "3/s burst 1", "--json", text=log_of((0, "a"), (0, "a"), (0.5, "b"))).stdout)
    assert (report["max_delay"], report["is_spread"]) == (0.333, False)


def test_requests_of_a_log_with_whole_seconds_are_spread_over_each_second():
    # 4.5 requests a second, steadily: a gate rejects none of them.
    lines = "".join(f'a - - [10/Oct/2000:13:55:{n * 2 // 9:02} +0000] "GET / HTTP/1.1" 200 9\n' for n in range(200))
    arguments = ["--rule", "5/s burst 3", "--max-delay", "0"]
    report = json.loads(run(*arguments, "--json", text=lines).stdout)
    assert (report["accepted"], report["is_spread"]) == (200, True)
    assert "whole seconds: requests are spread evenly" in run(*arguments, text=lines).stdout


@pytest.mark.parametrize(
    ("per_second", "clients", "rule"),
    [
        (1, 9, "1/s burst 2"),
        (8, 1, "10/s burst 20"),
        (8, 9, "10/s burst 20"),
        (8, 10, "1/s burst 2"),
        (3000, 1, "1000/s"),
    ],
)
def test_without_a_rule_the_strictest_is_suggested_that_rejects_few_clients(per_second, clients, rule):
    quiet = [(moment, f"quiet{number}") for number in range(clients - 1) for moment in range(10)]
    text = log_of(*quiet, *((number / per_second, "fast") for number in range(10 * per_second)))
    result = run("--max-delay", "0", text=text)
    assert result.stdout.startswith(f"suggested rule: {rule}")
    (suggested,) = json.loads(run("--max-delay", "0", "--json", text=text).stdout)["rules"]
    assert run("--rule", suggested, "--max-delay", "0", text=text).stdout == result.stdout.partition("\n\n")[2]


def test_the_table_has_no_control_characters():
    text = log_of((0, "\x1b[2Jevil"), (0, "\x1b[2Jevil"))
    shown = run("--rule", "1/s burst 1", text=text).stdout
    assert "\x1b" not in shown
    assert r"\x1b[2Jevil" in shown
    assert "longest delay" in shown
    assert "50.00%" in shown


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_log_without_a_valid_line_is_an_error(form):
    ran = CliRunner().invoke(replay, ["--rule", "1/s", *form, "-"], input="\nnonsense\n{}\n")
    assert ran.exit_code == 1
    assert "malformed" in ran.stdout
    assert ran.stderr.startswith("headgate: -: no valid line; line 2: ")
    assert ran.stderr.endswith(": nonsense\n")


STORIES = [
    json.loads(path.read_text()) for path in sorted((Path(__file__).parents[2] / "vectors" / "throttle").glob("*.json"))
]
X = "http://www.example.com/x"


def run_throttle(*arguments, text=""):
    return CliRunner().invoke(replay, ["--throttle", *arguments, "-"], input=text)


def answers(*lines, arguments=("--jitter", "0")):
    result = run_throttle(*arguments, text="".join(json.dumps(line) + "\n" for line in lines))
    assert result.exception is None, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def arguments_of(options):
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


def holds(expected, line):
    """Say whether everything expected stands in the line; a millisecond more or less is accepted."""
    return all(
        abs(line[name] - value) <= 1 if name == "release_ms" and value is not None else line[name] == value
        for name, value in expected.items()
    )


def test_vectors_of_the_throttle():
    assert len(STORIES) == 21
    for story in STORIES:
        check_story(story)


def check_story(story):
    given, expected = [], []
    for step in story["steps"]:
        repeat = step.get("repeat", 1)
        given += [step["in"]] * repeat
        expected += [{}] * (repeat - 1) + [step.get("out", {})]
    lines = answers(*given, arguments=arguments_of(story["options"]))
    assert len(lines) == len(given)
    for number, (question, wanted, line) in enumerate(zip(given, expected, lines, strict=True)):
        assert holds(wanted, line), (story["name"], number, question, wanted, line)
        assert line["t"] == question["t"]
        assert line["url"] == question.get("url")


def test_each_line_of_the_throttle_has_all_fields():
    failure = {"t": 1.5, "url": "HTTP://u:p@www.example.com:80/x?q#f", "status": 503}
    response, gesture, question = answers(failure, {"t": 2, "gesture": True}, {"t": 2, "url": X})
    assert response == {"t": 1.5, "url": failure["url"], "target": X, "failures": 1, "release_ms": 0, "held": False}
    assert gesture == {"t": 2, "url": None, "target": None, "failures": 0, "release_ms": 0, "held": False}
    assert question == {"t": 2, "url": X, "target": X, "failures": 1, "release_ms": 0, "held": False}


def test_a_bucket_is_printed_with_a_star():
    story = {"t": 0, "url": "http://www.example.com/a/b", "status": 503, "headers": {"DDoS-Bucket-With": "/a"}}
    assert answers(story)[0]["target"] == "http://www.example.com/a*"


@pytest.mark.parametrize(
    ("value", "release_ms"), [("9" * 400, None), ("9" * 307, None), (120, 120_000), ("1" + "0" * 12, 10**15)]
)
def test_a_release_that_is_too_far_for_a_number_is_null(value, release_ms):
    (line,) = answers({"t": 0, "url": X, "status": 200, "headers": {"Retry-After": value}})
    assert (line["release_ms"], line["held"]) == (release_ms, True)


def test_empty_lines_are_skipped_and_compressed_logs_are_read(tmp_path):
    log = tmp_path / "log.gz"
    log.write_bytes(gzip.compress(f'\n{{"t": 0, "url": "{X}"}}\n \n'.encode()))
    result = CliRunner().invoke(replay, ["--throttle", str(log)])
    assert len(result.stdout.splitlines()) == 1


MALFORMED = [
    ("{", "expected a line such as {"),
    ('127.0.0.1 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" 200 9', "not a JSON object; expected a line such as"),
    ("null", "expected a line such as {"),
    ("{}", "missing required field `t`"),
    ('{"t": "0", "url": "http://a/"}', "at `$.t`"),
    ('{"t": 1e999, "url": "http://a/"}', "expected a line such as {"),
    ('{"t": 1' + "0" * 400 + ', "url": "http://a/"}', "expected a line such as {"),
    ('{"t": 0}', 'neither a "url" nor "gesture": true'),
    ('{"t": 0, "url": 5}', "at `$.url`"),
    ('{"t": 0, "url": "/x", "status": 503}', "invalid URL '/x'; expected an http or https URL"),
    ('{"t": 0, "url": "ftp://a/"}', "invalid URL 'ftp://a/'"),
    ('{"t": 0, "url": "\\ud800"}', "line 2"),
    ('{"t": 0, "url": "http://a/", "status": 0}', "at `$.status`"),
    ('{"t": 0, "url": "http://a/", "status": 503, "headers": {"a": null}}', "at `$.headers[...]`"),
    ("[" * 100_000, "expected a line such as {"),
    ("x" * 2_000_000, "longer than 1048576 bytes"),
]


def test_a_malformed_line_ends_the_replay_with_its_number():
    wrong = []
    for line, reason in MALFORMED:
        result = run_throttle(text=f'{{"t": 0, "url": "{X}"}}\n{line}\n{{"t": 1, "url": "{X}"}}\n')
        error = str(result.exception)
        if not (
            isinstance(result.exception, ConfigurationError)
            and error.startswith("-: line 2: ")
            and reason in error
            and len(result.stdout.splitlines()) == 1
        ):
            wrong.append((line[:80], error[:200], result.stdout[:200]))
    assert wrong == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--jitter", "0"], "--jitter requires --throttle"),
        (["--rule", "1/s", "--policy", "draft"], "--policy requires --throttle"),
        (["--throttle", "--rule", "1/s"], "--rule cannot be used with --throttle"),
        (["--throttle", "--max-delay", "5"], "--max-delay cannot be used with --throttle"),
        (["--throttle", "--policy", "none"], "'none' is not one of 'draft', 'chromium'"),
        (["--throttle", "--draw", "1"], "less than 1, got '1'"),
        (["--throttle", "--draw", "half"], "got 'half'"),
    ],
)
def test_options_of_the_other_mode_are_wrong_use(arguments, said):
    result = CliRunner().invoke(replay, [*arguments, "-"])
    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("│", "").split())


def test_a_burst_that_needs_too_much_memory_is_an_error(headgate, tmp_path):
    (tmp_path / "log").write_bytes(b"")
    ran = headgate("replay", "--rule", "2000000/d", "--algorithm", "log", tmp_path / "log")
    assert ran.code == 2
    assert "16 MB; use algorithm gcra" in ran.err
    assert len(ran.err.splitlines()) == 1
