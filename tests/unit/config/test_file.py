import re
from operator import attrgetter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.config import Configuration, domain_changes, parse, read, schema, show
from headgate.config.advice_section import AdviceEntrySection, AdviceSection
from headgate.config.proxy_section import Proxy
from headgate.config.tree import BundleSection, Bus, DomainSection, Gate, Timeouts, TlsSection
from headgate.errors import ConfigurationError

FULL = """
[gate]
listen = "0.0.0.0:80"
origin = "http://127.0.0.1:8000"
max_delay = 3
trusted_proxies = ["10.0.0.0/8", "unix"]
[gate.timeouts]
response = 2.5
[[domain]]
name = "prefetch"
rules = ["1/s burst 2"]
header = "Sec-Purpose"
value = "prefetch"
[[domain]]
name = "default"
rules = ["10/s burst 20", "1000/h"]
mode = "shadow"
[[advice]]
user_agent = "prefetch-proxy"
fraction = 0.5
[master]
listen = "127.0.0.1:0"
"""


def test_a_file_is_read_into_the_tree(tmp_path):
    path = tmp_path / "headgate.toml"
    path.write_text(FULL)
    tree = read(path)
    assert tree.gate.max_delay == 3.0
    assert tree.gate.timeouts.response == 2.5
    assert tree.gate.timeouts.idle == 60.0
    assert [section.name for section in tree.domain] == ["prefetch", "default"]
    assert [str(rule) for rule in tree.domain[1].domain().rules] == ["10/s burst 20", "1000/h burst 1000"]
    assert tree.domain[1].domain().mode == "shadow"
    assert tree.advice.entry[0].fraction == 0.5


def test_a_byte_order_mark_is_removed():
    assert parse("\ufeff" + FULL) == parse(FULL)


def test_an_empty_file_has_all_defaults():
    tree = parse("")
    assert tree.gate.listen == "127.0.0.1:8080"
    assert tree.gate.max_delay == 5.0
    assert tree.gate.max_delayed == 1024
    assert tree.domain == ()


@pytest.mark.parametrize(
    ("text", "path", "hint"),
    [
        ('[gate]\nlisen = "a:1"', "gate.lisen", "'listen'"),
        ("[gate]\nmax-delay = 1", "gate.max-delay", "'max_delay'"),
        ("[gate.timeout]\nidle = 1", "gate.timeout", "'timeouts'"),
        ("[gate.timeouts]\nresponce = 1", "gate.timeouts.responce", "'response'"),
        ('[[domain]]\nname = "a"\nrule = ["1/s"]', "domain[0].rule", "'rules'"),
        ('[[advice]]\nuser_agent = "a"\nfractoin = 1', "advice[0].fractoin", "'fraction'"),
        ("[zzzzzz]", "zzzzzz", "gate, listener, tls, origin, limit, domain"),
        ('[gate]\nrules = ["1/s"]', "gate.rules", "it belongs under [[domain]]"),
        ('[gate]\ntls_cert = "a"', "gate.tls_cert", "did you mean [gate.tls] cert?"),
        ("[limit]\nconcurrency-maxx = 1", "limit.concurrency-maxx", "did you mean [limit.concurrency] max?"),
        ('[gate]\ncert = "a"', "gate.cert", "it belongs under [gate.tls] or [[tls]] or [[origin]] or [proxy]"),
        ("[master]\nworkers = 2", "master.workers", "it belongs under [gate] or [proxy]"),
    ],
)
def test_an_unknown_key_is_an_error_with_the_nearest_key(text, path, hint):
    with pytest.raises(ConfigurationError) as caught:
        parse(text, name="some.toml")
    assert str(caught.value).startswith(f"some.toml: {path}: unknown key; ")
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("key", "least", "default", "most"),
    [
        ("bounds.target_bytes", 64, 8_192, 1 << 20),
        ("bounds.head_bytes", 1_024, 32_768, 1 << 24),
        ("bounds.head_fields", 8, 128, 100_000),
        ("bounds.max_body", 0, 64 << 20, None),
        ("bounds.buffer_memory", 0, 32 << 20, None),
        ("bounds.buffer_files", 0, 512 << 20, None),
        ("buffer_response", 0, 1 << 20, None),
        ("bounds.connections", 1, 10_000, 1_000_000),
        ("bounds.client_connections", 0, 1_024, None),
        ("ipv6_prefix", 1, 64, 128),
    ],
)
def test_bounds_have_safe_defaults_and_a_range(key, least, default, most):
    assert attrgetter(key)(Configuration().gate) == default
    for value in (least, default, most or least):
        assert attrgetter(key)(parse(f"[gate]\n{key} = {value}").gate) == value
    for value in (least - 1, *([most + 1] if most else [])):
        with pytest.raises(ConfigurationError, match=rf"gate.{key}: "):
            parse(f"[gate]\n{key} = {value}")


def test_changes_of_domains_name_what_is_forgotten():
    a, b = (DomainSection(name=name, rules=("1/s",)) for name in "ab")
    off = DomainSection(name="a", rules=("1/s",), mode="off")
    assert domain_changes([a, b], [a, b]) == ""
    assert domain_changes([a], [a, b]) == "; domains changed: b (added); nothing was forgotten"
    assert domain_changes([a, b], [off]) == (
        "; domains changed: a (mode), b (removed); forgotten: what was counted in a, b"
    )
    assert domain_changes([off], [a]) == "; domains changed: a (mode); nothing was forgotten"


def test_a_text_in_place_of_a_list_of_tables_is_an_error_with_the_heading():
    with pytest.raises(ConfigurationError, match=r"origin: expected a list, got 'http://a'; write \[\[origin\]\]"):
        parse('origin = "http://a"')


def test_an_unreadable_file_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"none\.toml: No such file"):
        read(tmp_path / "none.toml")
    with pytest.raises(ConfigurationError, match="directory"):
        read(tmp_path)
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b"# \xe9")
    with pytest.raises(ConfigurationError, match="byte 2 is not UTF-8"):
        read(latin)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAME = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
SECONDS = st.floats(min_value=0.001, max_value=86_400)
DOMAIN = st.builds(
    DomainSection,
    name=NAME,
    rules=st.lists(st.sampled_from(["10/s burst 20", "1/h"]), max_size=3).map(tuple),
    header=st.sampled_from(["", "Sec-Purpose", 'no "name\\']),  # values of credentials are not written
    value=TEXT,
    exempt=st.lists(TEXT.filter(lambda text: "/" not in text), max_size=2).map(tuple),
)
TREE = st.builds(
    Configuration,
    gate=st.builds(
        Gate,
        max_delay=SECONDS,
        origin=st.sampled_from(["", "http://a", ("http://a:1", "https://b", "unix:/c:/d")]),
        timeouts=st.builds(Timeouts, idle=SECONDS),
        master=st.sampled_from(["embedded", "tcp://a:1", ("tcp://a:1", "tcp://b:1")]),
    ),
    domain=st.lists(DOMAIN, max_size=3, unique_by=lambda section: section.name).map(tuple),
    advice=st.builds(
        AdviceSection,
        floor=st.floats(0.001, 1),
        entry=st.lists(
            st.builds(AdviceEntrySection, user_agent=NAME.filter(str.strip), disallow=st.booleans()),
            max_size=2,
            unique_by=lambda entry: entry.user_agent,
        ).map(tuple),
    ),
    master=st.just(Bus()),
    bundle=st.lists(
        st.builds(
            BundleSection,
            file=TEXT,
            path=TEXT,
            lifeboat=st.booleans(),
            hosts=st.lists(TEXT, max_size=2).map(tuple),
            profile=st.sampled_from(["strict", "compat"]),
        ),
        max_size=2,
    ).map(tuple),
    proxy=st.builds(
        Proxy,
        brand=TEXT,
        self_signed=st.booleans(),
        allow_ports=st.lists(st.integers(1, 65_535), max_size=2).map(tuple),
        resolve=st.lists(TEXT, max_size=2).map(tuple),
        idle=SECONDS,
    ),
)


@given(TREE)
def test_written_tree_parses_to_the_same_tree(tree):
    assert parse(show(tree)) == tree


def test_missing_tables_are_written_as_comments():
    lines = show(Configuration()).splitlines()
    uncommented = "\n".join(line[1:] if line[:1] == "#" and line[1:2] not in {" ", ""} else line for line in lines)
    for old, new in (
        ("tls = false", ""),
        ('address = "…"', 'address = ":1"\ntls = true'),
        ('url = "…"', 'url = "http://a"'),
    ):
        uncommented = uncommented.replace(old, new)
    tree = parse(uncommented)
    assert (tree.domain, tree.bundle) == ((DomainSection(name="…"),), (BundleSection(file="…"),))
    assert tree.certificates == (TlsSection(cert="…", key="…"),)
    assert tree.advice.entry == (AdviceEntrySection(user_agent="…"),)
    assert "[[domain]]" not in show(Configuration(domain=tree.domain)).replace("\n[[domain]]", "", 1)


def test_each_key_follows_its_documentation():
    text = show(Configuration())
    assert '[[listener]] has more settings.\nlisten = "127.0.0.1:8080"\n' in text
    assert "[gate.timeouts]" in text


def test_every_key_of_every_table_is_described():
    for table in schema()["$defs"].values():
        assert table["additionalProperties"] is False
        for name, key in table["properties"].items():
            assert key.get("description"), name


def test_the_schema_has_a_pattern_for_rules():
    rule = schema()["$defs"]["DomainSection"]["properties"]["rules"]["items"]
    for text in ("10/s burst 20", "600 per 10min", "1000/h burst 50", "1 per 500ms burst 3"):
        assert re.search(rule["pattern"], text)
    assert not re.search(rule["pattern"], "ten per second")


def test_the_schema_has_the_defaults():
    written = msgspec.json.decode(msgspec.json.encode(schema()))
    gate = written["$defs"]["Gate"]["properties"]
    assert gate["listen"]["default"] == Configuration().gate.listen
    assert set(gate) == set(Configuration().gate.__struct_fields__)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:secret@a:1/2", "redis://user:***@a:1/2"),
        ("rediss+cluster://:secret@a:1,b:2?ssl_ca_certs=c", "rediss+cluster://:***@a:1,b:2?ssl_ca_certs=c"),
        ("redis://:se@cr:et@a", "redis://:***@a"),
        ("redis://a:1/2", "redis://a:1/2"),
        ("memory", "memory"),
    ],
)
def test_show_hides_the_password_of_a_store(url, shown):
    assert f'\nstore = "{shown}"\n' in show(Configuration(master=Bus(store=url)))


def test_the_values_of_credentials_are_hidden_and_not_is_a_table() -> None:
    text = (
        '[[domain]]\nname = "a"\nheader = "Authorization"\nprefix = "Bearer s3cret"\nnot = {HEADER, value = "s3cret"}'
    )
    shown = show(parse(text.replace("HEADER", 'header = "X-Api-Key"')))
    assert "s3cret" not in shown
    assert '\nprefix = "***"\n' in shown
    assert '\nnot = { header = "X-Api-Key", value = "***" }\n' in shown
    assert parse(shown).domain[0].unless.header == "X-Api-Key"
    plain = parse(text.replace("HEADER", 'header = "X"'))
    assert '\nnot = { header = "X", value = "s3cret" }\n' in show(plain)
    assert domain_changes(parse("").domain, plain.domain) == "; domains changed: a (added); nothing was forgotten"
    changed = parse(text.replace("HEADER", 'header = "Y"')).domain
    assert domain_changes(plain.domain, changed) == "; domains changed: a (not); nothing was forgotten"
