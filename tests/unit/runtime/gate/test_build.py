import resource

import pytest

from headgate.config import parse
from headgate.config.tree import Bounds
from headgate.errors import ConfigurationError
from headgate.limit.messages import DelayUntil
from headgate.origin import RequestInfo
from headgate.runtime.gate_build import (
    build_gatekeeper,
    build_policy,
    check_composition,
    compose,
    concurrency_settings,
    domains_with_kept_holds,
    fit_bounds,
    load_bundles,
    require_gate,
)
from tests import webbundles

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
    text = '[[domain]]\nname = "a"\npath_prefix = "/a"\n[[domain]]\nname = "b"\nmethods = ["POST"]\nuser_agent = "bot"'
    composed = compose(parse(text))
    assert composed.routes.match(RequestInfo(b"POST", b"/a", b"x", [], "")) == "a"
    assert composed.routes.match(RequestInfo(b"POST", b"/b", b"x", [(b"user-agent", b"Bot/1")], "")) == "b"
    assert composed.routes.match(RequestInfo(b"POST", b"/b", b"x", [], "")) is None
    assert composed.routes.match(RequestInfo(b"GET", b"/b", b"x", [], "")) is None


def test_agents_keep_their_keys_over_a_reload_and_those_in_force_are_named():
    named = '[web_bot_auth]\nauthorities = ["a"]\n[[domain]]\nname = "a"\nagent = "https://{}.example/keys"\n'
    old, new = (parse(GATE + named.format(name)) for name in ("old", "new"))
    composed = compose(old)
    verifier = build_policy(old, composed, gatekeeper("")).agents
    assert verifier.named == {"https://old.example/keys"}
    composed = compose(new, old, verifier)
    assert verifier.named == {"https://old.example/keys"}
    assert build_policy(new, composed, gatekeeper("")).agents is verifier
    assert verifier.named == {"https://new.example/keys"}


@pytest.mark.parametrize("more", ['agent = "*"', 'identify = "web-bot-auth"', "challenge = true", 'not.agent = "*"'])
def test_verifying_agents_needs_the_hosts_of_the_site(more):
    """Another site that an agent visits could send its signature here."""
    with pytest.raises(ConfigurationError, match=r"web_bot_auth\.authorities is empty"):
        compose(parse(RULED.format("a", "9/s") + more))


def test_rejections_have_the_fields_of_their_domain():
    text = RULED.format("a", "1/min burst 1") + 'path_prefix = "/a"\n'
    composed = compose(parse(GATE.replace("max_delay", "rejection_status = 429\nmax_delay") + text))
    keeper = gatekeeper(text)
    keeper.admit("a", b"x", now=0.0)
    response = composed.reject(keeper.admit("a", b"x", now=0.0), now=0.0, accept=None)
    assert response.status == 429
    assert dict(response.fields)[b"ddos-bucket-with"] == b"/a"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GATE, "no rule: add --rule"),
        (GATE + '[[domain]]\nname = "a"\n', "no rule"),
        (GATE.replace("http:", "ftp:") + RULED.format("a", "1/s"), "expected a URL such as 'http://127.0.0.1:8000'"),
        (GATE + 'identify = "shoe"\n' + RULED.format("a", "1/s"), "'shoe'"),
        (GATE + 'trusted_proxies = ["10/8"]\n' + RULED.format("a", "1/s"), "'10/8'"),
        (GATE + '[gate.tls]\ncert = "/none"\nkey = "/none"\n' + RULED.format("a", "1/s"), "'/none'"),
        (RULED.format("a", "1/s") + 'value = "x"\n', "without a header"),
        (RULED.format("a", "1/s") + 'path_prefix = "x"\n', "invalid path_prefix 'x'"),
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
    ("master", "algorithm", "rules", "longest"),
    [
        ("embedded", "log", ["1/s burst 2", None], 8.0),
        ("embedded", "gcra", ["1/s burst 2", None], 8.0),
        ("tcp://127.0.0.1:10004", "log", ["1/s burst 2", "1/s burst 3"], 9.0),
        ("tcp://127.0.0.1:10004", "log", ["1/s burst 2", None], 1_000.0),
        ("tcp://127.0.0.1:10004", "gcra", ["1/s burst 2", "1/s burst 3"], 1_000.0),
        ("tcp://127.0.0.1:10004", "smockron", ["1/s burst 2", "1/s burst 3"], 1_000.0),
        ("tcp://127.0.0.1:10004", "gcra", ["1/s burst 2", "1/h burst 1"], 3_606.0),
    ],
)
def test_holds_are_bounded_by_the_rules_where_all_are_known(master, algorithm, rules, longest):
    """Here `max_delay` is 5, and a second is for clocks that differ.

    With gcra, holds last until all requests accepted before the control arrived are within the rule.
    """
    domains = [
        f'[[domain]]\nname = "{name}"\nalgorithm = "{algorithm}"\n' + (f'rules = ["{rule}"]\n' if rule else "")
        for name, rule in zip("ab", rules, strict=True)
    ]
    tree = parse(f'[gate]\nmaster = "{master}"\nmax_hold = 1000\n' + "".join(domains))
    keeper = build_gatekeeper(tree, compose(tree).domains, None if master == "embedded" else lambda *_: None)
    keeper.obey(DelayUntil("a", b"x", 1e9))
    assert keeper.admit("a", b"x", now=100.0).release == 100.0 + longest


@pytest.mark.parametrize(
    ("text", "longest"),
    [
        ('[master]\nstore = "memory"', 8.0),
        ('[master]\nstore = "redis://127.0.0.1:6379"', 3_600.0),  # the excess of other gates
        ('[gate]\nmaster = "tcp://127.0.0.1:10004"\n[[domain]]\nname = "b"', 3_600.0),
    ],
)
def test_holds_of_other_gates_are_at_most_an_hour_by_default(text, longest):
    tree = parse(f'{text}\n[[domain]]\nname = "a"\nrules = ["1/s burst 2"]\nalgorithm = "gcra"\n')
    keeper = build_gatekeeper(tree, compose(tree).domains, (lambda *_: None) if tree.gate.masters else None)
    keeper.obey(DelayUntil("a", b"x", 1e9))
    assert keeper.admit("a", b"x", now=100.0).release == 100.0 + longest


@pytest.fixture
def site(tmp_path):
    return webbundles.write(tmp_path / "site.wbn")


def tree(site, *lines):
    return parse(f'[[bundle]]\nfile = "{site}"\n' + "".join(f"{line}\n" for line in lines))


def test_without_bundles_nothing_is_loaded():
    assert load_bundles(parse("")) is None


def test_bundle_is_published_or_a_lifeboat_or_both(site):
    both = load_bundles(tree(site, 'path = "/site.wbn"', "lifeboat = true"))
    assert list(both.published) == [b"/site.wbn"]
    assert [boat.bundle for boat in both.lifeboats] == list(both.published.values())
    assert not load_bundles(tree(site, 'path = "/site.wbn"')).lifeboats
    assert not load_bundles(tree(site, "lifeboat = true")).published


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], r"bundle\[0\]: it has no effect"),
        (['path = "site.wbn"'], "such as '/site.wbn'"),
        (['path = "/a%20b.wbn"'], "such as '/a b.wbn'"),
        (['path = "/a/../site.wbn"'], "such as '/site.wbn'"),
        (['path = "/site.wbn?x"'], "such as '/site.wbn'"),
        (['path = "/site.wbn#x"'], "such as '/site.wbn'"),
        (['path = "/a"', 'hosts = ["a"]'], "add lifeboat = true"),
        (["lifeboat = true", 'hosts = ["https://a"]'], r"bundle\[0\].hosts: invalid host 'https://a'"),
        (["lifeboat = true", 'hosts = [""]'], "invalid host"),
        (["lifeboat = true", 'hosts = ["é.example"]'], "invalid host"),
    ],
)
def test_invalid_section_is_refused(site, lines, words):
    with pytest.raises(ConfigurationError, match=words):
        check_composition(tree(site, *lines))


def test_two_bundles_at_one_path_are_refused(site):
    text = f'[[bundle]]\nfile = "{site}"\npath = "/a"\n'
    with pytest.raises(ConfigurationError, match=r"bundle\[1\].path: '/a' is taken"):
        check_composition(parse(text * 2))


def test_file_that_cannot_be_served_is_refused(tmp_path, site):
    missing = tmp_path / "none.wbn"
    with pytest.raises(ConfigurationError, match=r"bundle\[0\].file: .*none.wbn: No such file or directory; name a"):
        check_composition(tree(missing, "lifeboat = true"))
    with pytest.raises(ConfigurationError, match="is a directory; name a readable file"):
        check_composition(tree(tmp_path, "lifeboat = true"))
    missing.write_bytes(b"<!doctype html>")
    with pytest.raises(ConfigurationError, match=r"is not a valid bundle: .* at byte 0 \(3.3 step 2\)$"):
        check_composition(tree(missing, "lifeboat = true"))


def test_error_for_a_file_of_the_published_tools_names_profile_compat(tmp_path):
    site = webbundles.without_manifest(webbundles.write(tmp_path / "site.wbn"))
    with pytest.raises(ConfigurationError, match=r"manifest.*; profile compat accepts it"):
        check_composition(tree(site, "lifeboat = true"))
    check_composition(tree(site, "lifeboat = true", 'profile = "compat"'))


def test_only_changed_files_are_loaded_again(tmp_path, site):
    other = webbundles.write(tmp_path / "other.wbn")
    text = f'[[bundle]]\nfile = "{site}"\nlifeboat = true\n[[bundle]]\nfile = "{other}"\nlifeboat = true\n'
    first = load_bundles(parse(text))
    webbundles.write(other, {"url": "/", "payload": b"two"})
    second = load_bundles(parse(text), first)
    kept, new = (boat.bundle for boat in second.lifeboats)
    assert kept is first.lifeboats[0].bundle
    assert new is not first.lifeboats[1].bundle
    compat = load_bundles(parse(text.replace("lifeboat = true\n[[", 'lifeboat = true\nprofile = "compat"\n[[')), first)
    assert compat.lifeboats[0].bundle is not kept


async def test_invalid_replacement_is_logged(site):
    told = []
    shelf = load_bundles(tree(site, "lifeboat = true"), log=told.append)
    site.unlink()
    shelf.check()
    await next(iter(shelf.bundles)).renew()
    assert len(told) == 1


def test_workers_have_equal_parts_of_the_concurrency_limit():
    tree = parse("[gate]\nworkers = 3\n[limit.concurrency]\nmax = 10\nqueue = 2\nceiling = 7")
    parts = [concurrency_settings(tree, number) for number in range(3)]
    assert [part.max for part in parts] == [4, 3, 3]
    assert [part.queue for part in parts] == [1, 1, 0]
    assert [part.ceiling for part in parts] == [3, 2, 2]
    learned = parse('[gate]\nworkers = 3\n[limit.concurrency]\nmax = "learned"\nhealthy_latency = 1')
    assert [concurrency_settings(learned, number).max for number in range(3)] == ["learned"] * 3


@pytest.mark.parametrize("text", ["", "[limit.concurrency]\nmax = 0", '[limit.concurrency]\nmax = 1\nmode = "off"'])
def test_without_a_concurrency_limit_there_are_no_settings(text):
    assert concurrency_settings(parse(text)) is None


def test_a_concurrency_limit_needs_no_rule():
    origin = '[gate]\norigin = "http://127.0.0.1:1"\n'
    require_gate(parse(f"{origin}[limit.concurrency]\nmax = 1"))
    with pytest.raises(ConfigurationError, match="--max-in-flight"):
        require_gate(parse(f'{origin}[limit.concurrency]\nmax = 1\nmode = "off"'))


@pytest.mark.parametrize(("files", "connections", "lines"), [(20_000, 9_968, 0), (1_024, 480, 1), (30_000, 10_000, 0)])
def test_bounds_fit_the_limit_of_open_files_with_a_line_if_they_are_much_lower(monkeypatch, files, connections, lines):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    said = []
    assert fit_bounds(Bounds(connections=10_000), said.append).connections == connections
    assert len(said) == lines


def test_denied_addresses_come_from_the_list_and_from_files_except_those_that_are_allowed(tmp_path):
    (tmp_path / "denied").write_text("# from the abuse desk\n198.51.100.0/24  # a network\n\n2001:db8::1\n")
    denies = compose(parse(f'[gate]\ndeny = ["192.0.2.1", "{tmp_path}/denied"]\nallow = ["198.51.100.9"]')).denies
    denied = [address for address in ("192.0.2.1", "192.0.2.2", "198.51.100.1", "198.51.100.9", "") if denies(address)]
    assert denied == ["192.0.2.1", "198.51.100.1"]
    only = compose(parse('[gate]\ndeny = ["all"]\nallow = ["10.0.0.0/8"]')).denies
    assert [only(address) for address in ("10.1.1.1", "11.0.0.0", "::1", "")] == [False, True, True, True]
    assert compose(parse("")).denies is None


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ('allow = ["10.0.0.0/8"]', "gate.allow has no effect without gate.deny; to admit only these addresses, add"),
        ('deny = ["10.0.0.0/33"]', "gate.deny: invalid address '10.0.0.0/33'; expected"),
        ('deny = ["FILE"]', "gate.deny: invalid address '1.2.3'; expected an address"),
    ],
)
def test_an_invalid_list_of_addresses_is_refused(tmp_path, keys, words):
    (tmp_path / "denied").write_text("1.2.3.4\n1.2.3\n")
    with pytest.raises(ConfigurationError) as caught:
        compose(parse(f"[gate]\n{keys}".replace("FILE", str(tmp_path / "denied"))))
    assert words in str(caught.value)


def test_domains_have_their_own_identifiers_and_count_in_others():
    text = (
        GATE
        + """
    [[domain]]
    name = "api"
    path_prefix = "/api/"
    identify = ["header:X-Key", "path:2"]
    also = ["all"]
    cost = 3
    [[domain]]
    name = "all"
    """
    )
    composed = compose(parse(text))
    assert composed.routes.only is None
    info = RequestInfo(b"GET", b"/api/acme", b"x", [(b"x-key", b"k")], "192.0.2.1")
    assert composed.routes.charges(info, composed.identify) == ("api", b"=k&=acme", (("all", b"192.0.2.1"),), 3)
    info.path = b"/"
    assert composed.routes.charges(info, composed.identify) == ("all", b"192.0.2.1", (), 1)
