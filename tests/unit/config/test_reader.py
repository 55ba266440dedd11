import pytest

from headgate.config import parse, read
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


def test_reads_a_file_into_the_tree(tmp_path):
    path = tmp_path / "headgate.toml"
    path.write_text(FULL)
    tree = read(path)
    assert tree.gate.max_delay == 3.0
    assert tree.gate.timeouts.response == 2.5
    assert tree.gate.timeouts.idle == 60.0
    assert [section.name for section in tree.domain] == ["prefetch", "default"]
    assert [str(rule) for rule in tree.domain[1].domain().rules] == ["10/s burst 20", "1000/h burst 1000"]
    assert tree.domain[1].domain().mode == "shadow"
    assert tree.advice[0].fraction == 0.5


def test_a_byte_order_mark_is_no_part_of_the_text():
    assert parse("\ufeff" + FULL) == parse(FULL)


def test_an_empty_file_is_all_defaults():
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
        ("[zzzzzz]", "zzzzzz", "gate, domain, advice, master"),
        ('origin = "http://127.0.0.1:8000"', "origin", "it belongs under [gate]"),
        ('[gate]\nrules = ["1/s"]', "gate.rules", "it belongs under [[domain]]"),
        ("[master]\nworkers = 2", "master.workers", "it belongs under [gate] or [proxy]"),
    ],
)
def test_an_unknown_key_names_the_file_the_key_and_the_nearest(text, path, hint):
    with pytest.raises(ConfigurationError) as caught:
        parse(text, name="some.toml")
    assert str(caught.value).startswith(f"some.toml: {path}: unknown key; ")
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("[gate]\nlisten = 3", "gate.listen", "expected a text, got a whole number"),
        ('[gate]\nlisten = "nowhere"', "gate.listen", "127.0.0.1:8080"),
        ('[gate]\nmax_delay = "5"', "gate.max_delay", "expected a number, got a text"),
        ("[gate]\nmax_delay = nan", "gate.max_delay", "expected a number"),
        ("[gate]\nmax_delay = inf", "gate.max_delay", "expected a number"),
        ("[gate]\nworkers = 0", "gate.workers", ">= 1"),
        ("[gate]\nrejection_status = 500", "gate.rejection_status", "503, 429"),
        ('[gate]\nmaster = "there"', "gate.master", "embedded"),
        ('[gate]\nmaster = "tcp://a:65535"', "gate.master", "65535"),
        ("gate = 3", "gate", "expected a table"),
        ("[[domain]]", "domain[0]", "the key 'name' is missing"),
        ('[domain]\nname = "a"', "domain", "got a table; write [[domain]] for each, in place of [domain]"),
        ("domain = [3]", "domain[0]", "expected a table"),
        ('[[domain]]\nname = "a"\nrules = ["1/s", "10 per fortnite"]', "domain[0].rules[1]", "'10 per fortnite'"),
        ('[[domain]]\nname = "a"\nrules = "1/s"', "domain[0].rules", "expected a list"),
        ('[[domain]]\nname = "a"\nalgorithm = "leaky"', "domain[0].algorithm", "log, gcra, smockron"),
        ('[[domain]]\nname = "a"\nexempt = ["a/b"]', "domain[0]", "'a/b'"),
        ('[[domain]]\nname = ""', "domain[0]", "invalid domain name"),
        ('[[domain]]\nname = "a"\n[[domain]]\nname = "a"', "domain[1].name", "already used"),
        ('[gate.tls]\ncert = "a.pem"', "gate.tls", "needs its key"),
        ('[master]\nlisten = "a:65535"', "master.listen", "control"),
        ('[[advice]]\nuser_agent = "a"\nfraction = 2', "advice.fraction", "0 to 1"),
        ('[proxy]\nlisten = "nowhere"', "proxy.listen", "127.0.0.1:8080"),
        ('[proxy]\nadmin = "a"', "proxy.admin", "127.0.0.1:8080"),
        ('[proxy]\nclient_rate = "often"', "proxy.client_rate", "'often'"),
        ('[proxy]\nkey = "a.pem"', "proxy", "needs its key"),
        ("[proxy]\nself_signed = true\nplaintext = true", "proxy", "exclude each other"),
        ('[proxy]\nplaintext = true\nclient_ca = "a.pem"', "proxy", "needs TLS"),
        ('[proxy]\ntoken_store = "redis://a"', "proxy.token_store", "token_keys"),
        ('[proxy]\ngeofeed_path = "/a?b"', "proxy.geofeed_path", "'/geofeed.csv'"),
        ('[proxy]\nalpn = ["h3"]', "proxy.alpn", "'h3'"),
        ("[proxy]\nalpn = []", "proxy.alpn", "length >= 1"),
        ("[proxy]\nmax_tunnels = 0", "proxy.max_tunnels", ">= 1"),
        ("[proxy]\nallow_ports = [65536]", "proxy.allow_ports", "65535"),
        ("[gate", "not TOML", "end of document"),
        ("a = " + "[" * 5000, "not TOML", "deeply"),
    ],
)
def test_a_wrong_value_is_one_sentence_with_file_and_path(text, path, words):
    with pytest.raises(ConfigurationError) as caught:
        parse(text, name="some.toml")
    said = str(caught.value)
    assert said.startswith(f"some.toml: {path}")
    assert words in said
    assert "\n" not in said


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"none\.toml: No such file"):
        read(tmp_path / "none.toml")
    with pytest.raises(ConfigurationError, match="directory"):
        read(tmp_path)
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b"# \xe9")
    with pytest.raises(ConfigurationError, match="byte 2 is not UTF-8"):
        read(latin)
