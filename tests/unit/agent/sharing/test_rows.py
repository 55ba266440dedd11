import pytest

from headgate.agent.sharing.rows import (
    BUCKET,
    BUDGET,
    KINDS,
    LONGEST_BUCKET,
    LONGEST_NAME,
    OPT_OUT,
    TARGET,
    Row,
    bounded,
    checked,
    checked_key,
    parts,
)
from headgate.release import ASAP, NEVER
from headgate.throttle.target import parse_target, path_matches

NAME = "http://www.example.com/x"


class TestBounds:
    @pytest.mark.parametrize("path", ["/", "/x", "/" + "l" * 1_023])
    def test_a_target_that_is_short_stays(self, path):
        target = parse_target("http://www.example.com" + path)
        assert bounded(target) is target

    def test_of_a_long_path_the_beginning_and_a_hash_are_left(self):
        ends = [bounded(parse_target(f"http://www.example.com/{'l' * 1_023}{end}")) for end in ("1", "2", "2")]
        assert ends[0] != ends[1] == ends[2]
        for target in ends:
            assert len(target.path) == 1_024
            assert target.path.startswith("/lll")
            assert target.name == target.origin + target.path == f"http://www.example.com{target.path}"
            assert checked_key(TARGET, target.name) == (TARGET, target.name)

    def test_a_megabyte_is_no_longer_than_that(self):
        target = bounded(parse_target(f"https://{'h' * 280}:8080/{'l' * 1_000_000}"))
        assert len(target.name) <= LONGEST_NAME

    def test_no_host_is_as_long_as_that(self):
        assert bounded(parse_target(f"https://{'h' * 300}/")) is None
        longest = ".".join(["h" * 63] * 3 + ["h" * 61])
        assert bounded(parse_target(f"https://{longest}:65535/")) is not None

    @pytest.mark.parametrize("length", [2, LONGEST_BUCKET - 1, LONGEST_BUCKET])
    @pytest.mark.parametrize("next_one", ["/", "x"])
    def test_a_bucket_holds_the_same_targets_cut_or_not(self, length, next_one):
        bucket = "/" + "b" * (length - 1)
        target = parse_target(f"http://www.example.com{bucket}{next_one}{'l' * 2_000}")
        assert path_matches(bucket, bounded(target).path) is path_matches(bucket, target.path) is (next_one == "/")


class TestBelief:
    @pytest.mark.parametrize(
        ("kind", "name"),
        [
            (TARGET, NAME),
            (TARGET, "https://[::1]:8080/"),
            (BUCKET, "http://a/b"),
            (OPT_OUT, "www.example.com"),
            (OPT_OUT, "[::1]"),
            (BUDGET, "https://www.example.com:8443"),
        ],
    )
    def test_what_a_throttle_writes(self, kind, name):
        assert checked_key(kind, name) == (kind, name)
        assert checked(kind, name, 3, 1.5, ASAP, ASAP) == Row((kind, name), (3, 1.5, ASAP, ASAP))
        assert checked(kind, name, -1, ASAP, NEVER, 9.0) is not None

    @pytest.mark.parametrize(
        ("kind", "name"),
        [
            (len(KINDS), NAME),
            (-1, NAME),
            (None, NAME),
            ("0", NAME),
            (0.0, NAME),
            (TARGET, None),
            (TARGET, b"http://a/"),
            (TARGET, ""),
            (TARGET, "http://a"),
            (TARGET, "http:///x"),
            (TARGET, "ftp://a/"),
            (TARGET, "HTTP://a/"),
            (TARGET, "http://a/ b"),
            (TARGET, "http://a/\n"),
            (TARGET, "http://a/\ufffd"),
            (TARGET, "http://a/" + "l" * LONGEST_NAME),
            (BUCKET, "/b"),
            (OPT_OUT, "a/b"),
            (OPT_OUT, ""),
            (BUDGET, "http://a/"),
            (BUDGET, "a"),
        ],
    )
    def test_what_none_writes(self, kind, name):
        assert checked_key(kind, name) is None
        assert checked(kind, name, 3, 1.5, ASAP, ASAP) is None

    @pytest.mark.parametrize(
        "values",
        [
            (-2, 0.0, 0.0, 0.0),
            (2**31 + 1, 0.0, 0.0, 0.0),
            (None, 0.0, 0.0, 0.0),
            (1.0, 0.0, 0.0, 0.0),
            ("1", 0.0, 0.0, 0.0),
            (1, None, 0.0, 0.0),
            (1, 0.0, "soon", 0.0),
            (1, 0.0, 0.0, b""),
            (1, NEVER, 0.0, 0.0),
        ],
    )
    def test_values_that_make_no_sense(self, values):
        assert checked(TARGET, NAME, *values) is None


def test_a_name_has_an_origin_and_a_path():
    assert parts("http://a/b/c") == ("http://a", "/b/c")
    assert parts("https://a:81/") == ("https://a:81", "/")
