import pytest

from headgate.config import parse
from headgate.errors import ConfigurationError
from headgate.limit.accounting import DelayUntil
from headgate.limit.gatekeeper import MAX_HOLD
from headgate.origin import RequestInfo
from headgate.release import Status
from headgate.runtime.gate.build import (
    build_gatekeeper,
    check_composition,
    compose,
    domains_with_kept_holds,
    log_warnings,
    require_gate,
    restart_keys,
)

GATE = '[gate]\norigin = "http://127.0.0.1:1"\nmax_delay = 0\n'
RULED = '[[domain]]\nname = "{}"\nrules = ["{}"]\n'


def gatekeeper(text):
    tree = parse(GATE + text)
    return build_gatekeeper(tree, compose(tree).domains, None)


def test_without_domains_all_requests_are_of_domain_default():
    composed = compose(parse('[gate]\nmaster = "tcp://127.0.0.1:1"'))
    assert composed.routes.only == "default"
    assert [domain.rules for domain in composed.domains] == [()]


def test_domains_are_tried_in_the_order_of_the_file():
    composed = compose(parse('[[domain]]\nname = "a"\npath_prefix = "/a"\n[[domain]]\nname = "b"\nmethod = "POST"\n'))
    assert composed.routes.match(RequestInfo(b"POST", b"/a", b"x", [], "")) == "a"
    assert composed.routes.match(RequestInfo(b"POST", b"/b", b"x", [], "")) == "b"
    assert composed.routes.match(RequestInfo(b"GET", b"/b", b"x", [], "")) is None


def test_rejections_have_the_fields_of_their_domain():
    text = RULED.format("a", "1/min burst 1") + 'bucket = "/a"\nexponential_throttling = false\n'
    composed = compose(parse(GATE.replace("max_delay", "rejection_status = 429\nmax_delay") + text))
    keeper = gatekeeper(text)
    keeper.admit("a", b"x", now=0.0)
    response = composed.reject(keeper.admit("a", b"x", now=0.0), now=0.0, accept=None)
    assert response.status == 429
    fields = dict(response.fields)
    assert fields[b"ddos-bucket-with"] == b"/a"
    assert fields[b"exponential-throttling"] == b"disable"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GATE, "no rule: add --rule"),
        (GATE + '[[domain]]\nname = "a"\n', "no rule"),
        (GATE.replace("http:", "ftp:") + RULED.format("a", "1/s"), "http://HOST:PORT"),
        (GATE + 'identify = "shoe"\n' + RULED.format("a", "1/s"), "'shoe'"),
        (GATE + 'trusted_proxies = ["10/8"]\n' + RULED.format("a", "1/s"), "'10/8'"),
        (GATE + '[gate.tls]\ncert = "/none"\nkey = "/none"\n' + RULED.format("a", "1/s"), "'/none'"),
        (RULED.format("a", "1/s") + 'value = "x"\n', "without a header"),
        (RULED.format("a", "1/s") + 'bucket = "x"\n', "not a path"),
        ('[[advice]]\nuser_agent = "a"\n[[advice]]\nuser_agent = "a"\n', "twice"),
    ],
)
def test_invalid_configuration_is_refused(text, words):
    with pytest.raises(ConfigurationError, match=words):
        check_composition(parse(text))


def test_file_of_a_master_is_valid_without_an_origin():
    tree = parse(RULED.format("a", "1/s"))
    check_composition(tree)
    with pytest.raises(ConfigurationError, match="no origin"):
        require_gate(tree)


def statuses(keeper, domain, *moments):
    return [keeper.admit(domain, b"x", now=moment).status for moment in moments]


def test_unchanged_domain_keeps_holds_histories_and_totals():
    old = gatekeeper(RULED.format("a", "1/min burst 3"))
    assert statuses(old, "a", 0.0, 1.0) == [Status.ACCEPTED] * 2
    new = gatekeeper(RULED.format("a", "1/min burst 3") + RULED.format("b", "1/s"))
    new.adopt(old, ["a"])
    # Its history goes on: the third is the last that may pass.
    assert statuses(new, "a", 2.0, 3.0) == [Status.ACCEPTED, Status.REJECTED]
    newer = gatekeeper(RULED.format("a", "1/min burst 3"))
    newer.adopt(new, ["a"])
    assert statuses(newer, "a", 5.0) == [Status.REJECTED]
    assert (newer.totals["a"].accepted, newer.totals["a"].rejected) == (3, 2)
    assert newer.master is not None
    assert newer.master.totals["a"].accepted == 3
    assert len(newer.master) == 1


def test_domain_with_other_rules_keeps_only_its_totals():
    old = gatekeeper(RULED.format("a", "1/d burst 1"))
    assert statuses(old, "a", 0.0, 1.0) == [Status.ACCEPTED, Status.REJECTED]
    new = gatekeeper(RULED.format("a", "2/d burst 2"))
    new.adopt(old, [])
    assert statuses(new, "a", 2.0, 3.0, 4.0) == [Status.ACCEPTED, Status.ACCEPTED, Status.REJECTED]
    assert new.totals["a"].accepted == 3


@pytest.mark.parametrize(
    ("master", "kept"),
    [("embedded", {"a"}), ("ipc:///tmp/bus", {"a", "b", "c"}), ("tcp://127.0.0.1:10004", {"a", "b", "c"})],
)
def test_holds_are_kept_across_other_rules_only_with_a_master_elsewhere(master, kept):
    tree = parse(f'[gate]\nmaster = "{master}"\n')
    old = compose(parse(RULED.format("a", "1/s") + RULED.format("b", "1/s") + RULED.format("gone", "1/s")))
    new = compose(parse(RULED.format("a", "1/s") + RULED.format("b", "2/s") + RULED.format("c", "1/s")))
    assert domains_with_kept_holds(tree, old, new) == kept


@pytest.mark.parametrize(
    ("master", "rules", "longest"),
    [
        ("embedded", ["1/s burst 2", None], 8.0),
        ("tcp://127.0.0.1:10004", ["1/s burst 2", "1/s burst 3"], 9.0),
        ("tcp://127.0.0.1:10004", ["1/s burst 2", None], MAX_HOLD),
    ],
)
def test_holds_are_bounded_by_the_rules_where_all_are_known(master, rules, longest):
    """Here `max_delay` is 5, and a second is for clocks that differ."""
    domains = [
        f'[[domain]]\nname = "{name}"\n' + (f'rules = ["{rule}"]\n' if rule else "")
        for name, rule in zip("ab", rules, strict=True)
    ]
    tree = parse(f'[gate]\nmaster = "{master}"\n' + "".join(domains))
    keeper = build_gatekeeper(tree, compose(tree).domains, None if master == "embedded" else lambda *_: None)
    keeper.obey(DelayUntil("a", b"x", 1e9))
    assert keeper.admit("a", b"x", now=100.0).release == 100.0 + longest


def test_holds_of_a_domain_without_requests_are_kept():
    old, new = gatekeeper(RULED.format("a", "1/s")), gatekeeper(RULED.format("a", "1/s"))
    old.obey(DelayUntil("a", b"x", 9.0))
    new.adopt(old, ["a"])
    assert new.held("a", b"x", now=1.0) == 9.0


LONG_LOG = '[[domain]]\nname = "{}"\nrules = ["{}"]\nalgorithm = "log"\n'


def test_warning_is_logged_for_each_domain_with_a_long_log():
    lines = []
    log_warnings(parse(LONG_LOG.format("a", "20000/h") + LONG_LOG.format("b", "1/s")), lines.append)
    assert len(lines) == 1
    assert "'a'" in lines[0]


def test_keys_that_need_a_restart():
    old = parse(GATE)
    assert restart_keys(old, parse(GATE.replace("max_delay = 0", "max_delay = 1"))) == []
    assert restart_keys(old, parse(GATE + 'workers = 3\n[master]\nlisten = "127.0.0.1:9"')) == [
        "gate.workers",
        "master.listen",
    ]
