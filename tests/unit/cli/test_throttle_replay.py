"""The stories in tests/vectors/throttle, told to `headgate replay --throttle`; and what its lines may be."""

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.cli.replay import replay
from headgate.errors import ConfigurationError

VECTORS = [
    json.loads(path.read_text()) for path in sorted((Path(__file__).parents[2] / "vectors" / "throttle").glob("*.json"))
]
X = "http://www.example.com/x"


def run(*arguments, text=""):
    return CliRunner().invoke(replay, ["--throttle", *arguments, "-"], input=text)


def answers(*lines, arguments=("--jitter", "0")):
    result = run(*arguments, text="".join(json.dumps(line) + "\n" for line in lines))
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


def test_the_stories_are_there():
    assert len(VECTORS) == 21


@pytest.mark.parametrize("story", VECTORS, ids=lambda story: story["name"])
def test_stories(story):
    given, expected = [], []
    for step in story["steps"]:
        repeat = step.get("repeat", 1)
        given += [step["in"]] * repeat
        expected += [{}] * (repeat - 1) + [step.get("out", {})]
    lines = answers(*given, arguments=arguments_of(story["options"]))
    assert len(lines) == len(given)
    for number, (question, wanted, line) in enumerate(zip(given, expected, lines, strict=True)):
        assert holds(wanted, line), (number, question, wanted, line)
        assert line["t"] == question["t"]
        assert line["url"] == question.get("url")


def test_a_line_for_each_line_with_all_its_fields():
    failure = {"t": 1.5, "url": "HTTP://u:p@www.example.com:80/x?q#f", "status": 503}
    response, gesture, question = answers(failure, {"t": 2, "gesture": True}, {"t": 2, "url": X})
    assert response == {"t": 1.5, "url": failure["url"], "target": X, "failures": 1, "release_ms": 0, "held": False}
    assert gesture == {"t": 2, "url": None, "target": None, "failures": 0, "release_ms": 0, "held": False}
    assert question == {"t": 2, "url": X, "target": X, "failures": 1, "release_ms": 0, "held": False}


def test_a_question_changes_nothing():
    first, *rest = answers(
        {"t": 0, "url": X, "status": 200, "headers": {"retry-after": "9"}}, *[{"t": 0, "url": X}] * 9
    )
    assert rest == [first] * 9


def test_a_bucket_has_a_star():
    story = {"t": 0, "url": "http://www.example.com/a/b", "status": 503, "headers": {"DDoS-Bucket-With": "/a"}}
    assert answers(story)[0]["target"] == "http://www.example.com/a*"


@pytest.mark.parametrize(
    ("value", "release_ms"),
    [("9" * 400, None), ("9" * 307, None), (120, 120_000), ("1" + "0" * 12, 10**15)],
)
def test_a_release_too_far_for_a_number_is_null(value, release_ms):
    (line,) = answers({"t": 0, "url": X, "status": 200, "headers": {"Retry-After": value}})
    assert (line["release_ms"], line["held"]) == (release_ms, True)


def test_a_release_is_told_to_the_nearest_millisecond():
    _, line = answers({"t": 0, "url": X, "status": 200, "headers": {"Retry-After": "1"}}, {"t": 0.9996, "url": X})
    assert (line["release_ms"], line["held"]) == (0, True)


def test_empty_lines_are_none_and_a_log_may_be_compressed(tmp_path):
    log = tmp_path / "log.gz"
    log.write_bytes(gzip.compress(f'\n{{"t": 0, "url": "{X}"}}\n \n'.encode()))
    result = CliRunner().invoke(replay, ["--throttle", str(log)])
    assert len(result.stdout.splitlines()) == 1


def test_without_draw_chance_is_at_work():
    seen = set()
    for _ in range(9):
        *_, line = answers(*[{"t": 0, "url": X, "status": 503}] * 23, arguments=())
        assert 737_900 <= line["release_ms"] <= 819_950
        seen.add(line["release_ms"])
    assert len(seen) > 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "expected a line such as {"),
        ("[]", "expected a line such as {"),
        ("null", "expected a line such as {"),
        ("{}", "missing required field `t`"),
        ('{"t": "0", "url": "http://a/"}', "at `$.t`"),
        ('{"t": true, "url": "http://a/"}', "at `$.t`"),
        ('{"t": NaN, "url": "http://a/"}', "expected a line such as {"),
        ('{"t": 1e999, "url": "http://a/"}', "expected a line such as {"),
        ('{"t": 1' + "0" * 400 + ', "url": "http://a/"}', "expected a line such as {"),
        ('{"t": 0}', 'neither a "url" nor "gesture": true'),
        ('{"t": 0, "gesture": false}', 'neither a "url" nor "gesture": true'),
        ('{"t": 0, "url": 5}', "at `$.url`"),
        ('{"t": 0, "url": "/x", "status": 503}', "invalid URL '/x'; expected an http or https URL"),
        ('{"t": 0, "url": "ftp://a/"}', "invalid URL 'ftp://a/'"),
        ('{"t": 0, "url": "\\ud800"}', "line 2"),
        ('{"t": 0, "url": "http://a/", "status": "503"}', "at `$.status`"),
        ('{"t": 0, "url": "http://a/", "status": 0}', "at `$.status`"),
        ('{"t": 0, "url": "http://a/", "status": 503, "headers": []}', "at `$.headers`"),
        ('{"t": 0, "url": "http://a/", "status": 503, "headers": {"a": null}}', "at `$.headers[...]`"),
        ("[" * 100_000, "expected a line such as {"),
        ("x" * 2_000_000, "longer than 1048576 bytes"),
    ],
)
def test_a_line_that_cannot_be_read_ends_the_replay_by_its_number(line, said):
    result = run(text=f'{{"t": 0, "url": "{X}"}}\n{line}\n{{"t": 1, "url": "{X}"}}\n')
    assert isinstance(result.exception, ConfigurationError)
    assert str(result.exception).startswith("-: line 2: ")
    assert said in str(result.exception)
    assert len(result.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "missing option '--rule'; give one, such as '10/s burst 20'"),
        (["--jitter", "0"], "missing option '--rule'; give one, such as '10/s burst 20'"),
        (["--rule", "1/s", "--jitter", "0"], "--jitter requires --throttle"),
        (["--rule", "1/s", "--policy", "draft"], "--policy requires --throttle"),
        (["--throttle", "--rule", "1/s"], "--rule cannot be used with --throttle"),
        (["--throttle", "--max-delay", "5"], "--max-delay cannot be used with --throttle"),
        (["--throttle", "--policy", "none"], "'none' is not one of 'draft', 'chromium'"),
        (["--throttle", "--draw", "1"], "less than 1, got '1'"),
        (["--throttle", "--draw", "nan"], "got 'nan'"),
        (["--throttle", "--draw", "half"], "got 'half'"),
    ],
)
def test_wrong_use_is_told(arguments, said):
    result = CliRunner().invoke(replay, [*arguments, "-"])
    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("│", "").split())


@pytest.mark.parametrize("jitter", ["-1", "1.5", "nan"])
def test_a_jitter_that_is_none_is_told(jitter):
    result = run("--jitter", jitter)
    assert isinstance(result.exception, ConfigurationError)
    assert str(result.exception).startswith("jitter_factor must ")


def test_a_file_that_is_not_there_is_told(tmp_path):
    result = CliRunner().invoke(replay, ["--throttle", str(tmp_path / "none")])
    assert isinstance(result.exception, ConfigurationError)
    assert str(result.exception).startswith(f"{tmp_path / 'none'}: No such file")
