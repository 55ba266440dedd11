import json

import pytest

from headgate.errors import ConfigurationError
from headgate.limit import Accounting, Domain, Gatekeeper, Rule
from headgate.limit.arrivals import MEMORY_SIZE, Arrivals
from headgate.origin import Rejections, Response
from headgate.origin.response import QuotaFields, Refusals, problem, ratelimit, ratelimit_policy
from headgate.release import NEVER, Status


def test_a_problem_is_a_line_of_text_or_a_document():
    response = problem(502, "Bad gateway", "The origin refused the connection.", b"application/problem+json")
    assert json.loads(response.body) == {
        "type": "about:blank",
        "title": "Bad gateway",
        "status": 502,
        "detail": "The origin refused the connection.",
    }
    text = problem(502, "Bad gateway", "No.")
    assert text.body == b"Bad gateway. No.\n"
    for one in (response, text):
        assert dict(one.fields)[b"content-length"] == b"%d" % len(one.body)
        assert dict(one.fields)[b"cache-control"] == b"no-store"


NOW = 1_700_000_000.25


def rejected(wait: float, domain: str = "api") -> Accounting:
    return Accounting(domain, Status.REJECTED, b"alice", NOW, NOW + wait)


def api(*rules: str, name: str = "api") -> Domain:
    return Domain(name, tuple(Rule.parse(rule) for rule in rules))


def field(response: Response, name: bytes) -> bytes | None:
    values = [value for field_name, value in response.fields if field_name == name]
    assert len(values) < 2
    return values[0] if values else None


@pytest.mark.parametrize(
    ("wait", "seconds"), [(6.0, b"6"), (6.001, b"7"), (5.5, b"6"), (0.01, b"1"), (0.0, b"1"), (3600.0, b"3600")]
)
def test_the_seconds_round_up_and_retry_after_is_not_before_the_window_ends(wait, seconds):
    """ "the Retry-After field value SHOULD NOT reference a point in time earlier than the end of the effective window"
    (draft-ietf-httpapi-ratelimit-headers, section 6)."""
    response = Rejections([api("10/s burst 20")])(rejected(wait), now=NOW)
    assert field(response, b"retry-after") == seconds
    assert field(response, b"ratelimit") == b'"api";r=0;t=' + seconds


def test_a_release_of_never_names_no_time():
    response = Rejections([api("10/s")])(Accounting("api", Status.REJECTED, b"a", NOW, NEVER), now=NOW)
    assert field(response, b"retry-after") is None
    assert field(response, b"ratelimit") == b'"api";r=0'
    assert b"not at any time" in response.body


@pytest.mark.parametrize(
    ("rules", "value"),
    [
        (["10/s burst 20"], b'"api";q=20;w=2'),
        (["10/s burst 15"], b'"api";q=15;w=2'),
        (["1000/s burst 1"], b'"api";q=1;w=1'),
        (["600 per 10min"], b'"api";q=600;w=600'),
        (["3/10s burst 3"], b'"api";q=3;w=10'),
        (["10/s burst 20", "1000/h burst 50"], b'"api";q=20;w=2, "api/2";q=50;w=180'),
        (["1/s", "1/s", "1/s"], b'"api";q=1;w=1, "api/2";q=1;w=1, "api/3";q=1;w=1'),
    ],
)
def test_each_rule_is_a_policy_with_a_name_of_its_own(rules, value):
    """ "The time window MUST be a non-negative, non-zero, Integer value" (section 3.1.3)."""
    assert ratelimit_policy(api(*rules)) == value


def test_names_are_strings_of_structured_fields():
    assert ratelimit_policy(api("1/s", name='a"b\\é')) == b'"a\\"b\\\\%C3%A9";q=1;w=1'
    assert ratelimit("\udcff", 3) == b'"?";r=0;t=3'


def test_a_domain_without_rules_has_no_policy():
    response = Rejections([Domain("api")])(rejected(6.0), now=NOW, accept=b"application/problem+json")
    assert field(response, b"ratelimit-policy") is None
    assert field(response, b"ratelimit") == b'"api";r=0;t=6'
    assert json.loads(response.body)["type"] == "about:blank"


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (None, b"text/plain; charset=utf-8"),
        (b"application/json, application/problem+json;q=0", b"text/plain; charset=utf-8"),
        (b"application/json, */*;q=0.5", b"application/problem+json"),
    ],
)
def test_the_body_is_text_or_a_problem_document_by_accept(accept, kind):
    response = Rejections([api("10/s")])(rejected(6.0), now=NOW, accept=accept)
    assert field(response, b"content-type") == kind
    assert field(response, b"content-length") == str(len(response.body)).encode()
    assert field(response, b"cache-control") == b"no-store"


def test_the_problem_document_names_the_policy_and_the_status():
    response = Rejections([api("10/s")], status=429)(rejected(6.0), now=NOW, accept=b"application/problem+json")
    content = json.loads(response.body)
    assert response.status == content["status"] == 429
    assert content["type"] == "https://iana.org/assignments/http-problem-types#quota-exceeded"
    assert content["violated-policies"] == ["api"]
    assert "in 6 s" in content["detail"]


@pytest.mark.parametrize("accept", [None, b"application/problem+json"])
def test_a_name_that_utf_8_cannot_encode_is_escaped(accept):
    response = Rejections([api("1/s", name="\udcff")])(rejected(6.0, "\udcff"), now=NOW, accept=accept)
    assert b"udcff" in response.body
    assert field(response, b"ratelimit") == b'"?";r=0;t=6'


@pytest.mark.parametrize(
    ("prefix", "bucket"), [("/api/", b"/api/"), ("/é\r\nX: y", b"/%C3%A9%0D%0AX:%20y"), ("/a%20b", b"/a%20b")]
)
def test_agents_are_told_to_throttle_a_domain_as_one(prefix, bucket):
    assert field(Rejections([api("10/s")])(rejected(6.0), now=NOW), b"ddos-bucket-with") == b"/"
    response = Rejections([api("10/s")], path_prefixes={"api": prefix})(rejected(6.0), now=NOW)
    assert field(response, b"ddos-bucket-with") == bucket


def test_rejections_know_the_domains_of_an_embedded_master():
    rejections = Rejections.of(Gatekeeper.embedded([api("10/s")]), status=429, path_prefixes={"api": "/api"})
    response = rejections(rejected(6.0), now=NOW)
    assert response.status == 429
    assert field(response, b"ratelimit-policy") == b'"api";q=10;w=1'
    assert field(response, b"ddos-bucket-with") == b"/api"
    other = rejections(rejected(6.0, "other"), now=NOW)
    assert field(other, b"ratelimit-policy") is None
    assert field(other, b"ddos-bucket-with") == b"/"


def test_rejections_without_a_master_name_no_policy():
    response = Rejections.of(Gatekeeper())(rejected(6.0), now=NOW)
    assert response.status == 503
    assert field(response, b"ratelimit-policy") is None


@pytest.mark.parametrize("prefix", ["api", ""])
def test_an_invalid_path_prefix_is_refused(prefix):
    with pytest.raises(ConfigurationError, match="invalid path prefix"):
        Rejections(path_prefixes={"api": prefix})


@pytest.mark.parametrize("status", [200, 403, 500])
@pytest.mark.parametrize("kind", [Rejections, Refusals])
def test_a_status_other_than_503_and_429_is_refused(kind, status):
    with pytest.raises(ConfigurationError, match=rf"{kind.__name__[:-1].lower()} status {status} .*use 503 or 429"):
        kind(status=status)


def test_equal_rejections_are_rendered_once():
    rejections = Rejections([api("10/s")])
    first = rejections(rejected(6.0), now=NOW, accept=b"text/html")
    assert rejections(rejected(9.5), now=NOW + 3.6, accept=b"*/*") is first
    for other in (
        rejections(rejected(7.0), now=NOW),
        rejections(rejected(6.0, "other"), now=NOW),
        rejections(rejected(6.0), now=NOW, accept=b"application/json"),
    ):
        assert other is not first


@pytest.mark.parametrize(
    ("retry_after", "seconds"), [(0.0, b"1"), (0.2, b"1"), (1.0, b"1"), (1.2, b"2"), (60.0, b"60"), (1e9, b"86400")]
)
def test_the_seconds_of_a_refusal_round_up_and_agree(retry_after: float, seconds: bytes) -> None:
    response = Refusals()(retry_after)
    assert field(response, b"retry-after") == seconds
    assert field(response, b"ratelimit") == b'"concurrency";r=0;t=' + seconds
    assert b"in %b s" % seconds in response.body


def test_a_refusal_is_text_or_a_problem_document_and_names_no_capacity() -> None:
    response = Refusals()(3.0)
    assert field(response, b"ratelimit-policy") is field(response, b"link") is None
    assert response.body == b"Server is busy. The server is handling as many requests as it can; try again in 3 s.\n"
    content = json.loads(Refusals(status=429)(3.0, accept=b"application/json").body)
    assert content["status"] == 429
    assert content["type"] == "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"


def test_a_link_is_sent_with_a_refusal() -> None:
    link = b'</site.wbn>; rel="alternate"'
    assert field(Refusals()(3.0, link=link), b"link") == link


def test_a_refusal_is_written_once_for_each_number_of_seconds() -> None:
    refusals = Refusals()
    assert refusals(3.0) is refusals(2.5)
    assert refusals(3.0) is not refusals(3.0, accept=b"application/json")


@pytest.mark.parametrize(
    ("share", "rules", "sent"),
    [
        (0.5, ["10/s burst 4"], {3: "r=1;t=1", 4: "r=0;t=1", 5: "r=0;t=1"}),
        (1.0, ["1/s burst 3"], {1: "r=2;t=1", 2: "r=1;t=2", 3: "r=0;t=3", 4: "r=0;t=3"}),
        (0.5, ["10/s burst 100", "1/min burst 4"], {3: "/2 r=1;t=180", 4: "/2 r=0;t=240", 5: "/2 r=0;t=240"}),
    ],
)
def test_accepted_requests_are_told_what_is_left_of_the_burst_when_it_is_little(share, rules, sent):
    domain = Domain("api", tuple(map(Rule.parse, rules)))
    policy = f"RateLimit-Policy: {ratelimit_policy(domain).decode()}\r\n"
    gatekeeper = Gatekeeper.embedded([domain], max_delay=90)
    quota = QuotaFields(gatekeeper, [domain], {"api": share})
    lines = {}
    for number in range(1, len(sent) + 3 if share == 0.5 else 5):
        line = quota(gatekeeper.admit("api", b"192.0.2.1", now=100.0)).decode()
        if line:
            name, _, values = line.removeprefix(policy).removeprefix("RateLimit: ").strip().partition(";")
            lines[number] = f"{name[4:-1]} {values}".strip()
    assert lines == sent
    assert quota(gatekeeper.admit("elsewhere", b"192.0.2.1", now=100.0)) == b""


def test_workers_tell_what_they_have_admitted_together_and_others_nothing():
    domain = Domain("api", (Rule.parse("1/s burst 4"),))
    memory = memoryview(bytearray(b"k" * 32).ljust(MEMORY_SIZE, b"\0"))
    workers = [Gatekeeper(lambda *_: None, arrivals=Arrivals([domain], memory)) for _ in range(2)]
    quotas = [QuotaFields(worker, [domain], {"api": 0.5}) for worker in workers]
    told = [quota(worker.admit("api", b"x", now=100.0)) for worker, quota in zip(workers * 2, quotas * 2, strict=True)]
    assert [b"r=1;t=3" in line for line in told] == [False, False, True, False]
    assert b"r=0;t=4" in told[3]
    alone = Gatekeeper()
    assert QuotaFields(alone, [domain], {"api": 1.0})(alone.admit("api", b"x", now=100.0)) == b""
