import sys

import pytest
from msgspec.structs import replace

from headgate.config import Configuration, check, log_warnings, parse
from headgate.errors import ConfigurationError

COMPUTED = '[advice]\nmode = "adaptive"\ncapacity = "5/s"\n'
ENTRY = '[[advice.entry]]\nuser_agent = "*"\nfraction = "auto"\n'
CERTIFICATE = '[[tls]]\ncert = "a"\nkey = "a"\n'
ALSO = '[[domain]]\nname = "a"\nrules = ["1/s burst 5"]\n[[domain]]\nname = "b"\n'
HOST = ALSO.replace('5"]', '5"]\nhost = "h"')
SMOCKRON = '[[domain]]\nname = "a"\nalgorithm = "smockron"\n[master]\n'
LEARNED = '[advice]\nmode = "adaptive"\ncapacity = "learned"\n'
INVALID = [
    (ALSO + 'also = ["c"]', "domain[1].also", "invalid domain 'c'; expected others, each once: 'a'"),
    (ALSO + 'also = ["b"]', "domain[1].also", "invalid domain 'b'"),
    (ALSO + 'also = ["a", "a"]', "domain[1].also", "invalid domain 'a'"),
    (ALSO + 'also = ["a"]', "domain[1]", "'a' before it matches all requests, so 'b' gets none; put 'a' at the end"),
    (f'{HOST}also = ["a"]\ncost = 6', "domain[1].cost", "6 is more than the burst of '1/s burst 5' in domain 'a'"),
    (ALSO + "cost = 101", "domain[1].cost", "from 1 to 100, got 101"),
    ("[gate]\nlisten = 3", "gate.listen", "expected a text or a list, got 3"),
    ('[gate]\nlisten = "nowhere"', "gate.listen", "127.0.0.1:8080"),
    ('[gate]\nlisten = [":1", "unix:"]', "gate.listen", "invalid path '' of a unix socket"),
    ("[gate]\nlisten = []", "gate.listen", "no address is listed"),
    ('[gate]\nlisten = [":1", ":1"]', "gate.listen", "':1' is listed twice"),
    ('[gate]\nlisten = ":1"\n[[listener]]\naddress = ":2"', "gate.listen", "leave it out, or the tables"),
    ('[[listener]]\naddress = "a"', "listener[0].address", "expected HOST:PORT"),
    ('[[listener]]\naddress = "unix:a"\nmode = "9"', "listener[0].mode", "expected permissions in octal"),
    ('[[listener]]\naddress = ":1"\nmode = "0600"', "listener[0].mode", "'0600' is for a unix socket"),
    ('[[listener]]\naddress = ":1"\ntls = true', "listener[0].tls", "needs a certificate"),
    ('[[listener]]\naddress = ":1"\nclient_ca = "a"', "listener[0].client_ca", "add tls = true"),
    ('[[listener]]\naddress = ":1"\nproxy_protocol = true', "listener[0].proxy_protocol", "gate.trusted_proxies"),
    (f'[[listener]]\naddress = ":1"\ntls = true\nredirect = true\n{CERTIFICATE}', "listener[0].redirect", "`tls`"),
    (f'[[listener]]\naddress = ":1"\n{CERTIFICATE}', "tls", "no listener uses the certificates"),
    (f"{CERTIFICATE}{CERTIFICATE}", "tls[1].names", "only the first certificate is for all names"),
    (f'{CERTIFICATE}names = ["*.*.a"]', "tls[0].names", "invalid name '*.*.a'"),
    (f'{CERTIFICATE}names = ["b"]\n{CERTIFICATE}names = ["a", "B"]', "tls[1].names", "'b' has a certificate already"),
    ('[gate]\nmax_delay = "5"', "gate.max_delay", "expected a number from 0 to 86,400, got '5'"),
    ("[gate]\nmax_delay = nan", "gate.max_delay", "expected a number"),
    ("[gate]\nmax_delay = inf", "gate.max_delay", "expected a number"),
    ("[limit.concurrency]\nmax = -1", "limit.concurrency.max", "a whole number from 0 to 1,000,000 or 'learned'"),
    ('[limit.concurrency]\nmax = "many"', "limit.concurrency.max", "'many'"),
    ("[limit.concurrency]\nmax = 1\n[gate]\nworkers = 2", "limit.concurrency.max", "each of 2 workers needs a permit"),
    ("[limit.concurrency]\nhealthy_latency = -1", "limit.concurrency.healthy_latency", "a number from 0 to 86,400"),
    ('[[domain]]\nname = "a"\npriority = "robots"', "domain[0].priority", "people, verified, automated, prefetch"),
    ('[gate]\nlisen = "a"', "gate.lisen", "did you mean 'listen'?"),
    ("[gate]\ntrusted = []", "gate.trusted", "did you mean 'trusted_proxies'?"),
    ("[gate]\nretry = 1", "gate.retry", "the keys are listen, origin"),  # no key is near
    ("[gate]\nworkers = 0", "gate.workers", "expected a whole number from 1 to 256, got 0"),
    ("[gate]\nrejection_status = 500", "gate.rejection_status", "503, 429"),
    ('[gate]\nmaster = "there"', "gate.master", "embedded"),
    ('[gate]\nmaster = "tcp://a:65535"', "gate.master", "65535"),
    ("[gate]\nmaster = 3", "gate.master", "expected a text or a list, got 3"),
    ("[gate]\nmaster = []", "gate.master", "no master is listed"),
    ('[gate]\nmaster = ["tcp://a:1", "there"]', "gate.master", "invalid master 'there'"),
    ('[gate]\nmaster = ["a:1", "tcp://b:1", "tcp://a:1"]', "gate.master", "'tcp://a:1' is listed twice"),
    ('[gate]\nmaster = ["embedded", "tcp://a:1"]', "gate.master", "cannot be listed with others"),
    ('[router]\nlisten = "a:65535"', "router.listen", "control"),
    ('[router]\nmaster = ["a:1", "tcp://b:65535"]', "router.master", "65535"),
    ('[router]\nmaster = ["a:1", "a:1"]', "router.master", "'a:1' is listed twice"),
    ('[router]\nmaster = ["a:0"]', "router.master", "port 0 is for listeners"),
    ('[gate]\nmaster = "tcp://a:0"', "gate.master", "port 0 is for listeners"),
    ('[router]\nlisten = "a:1"\nmaster = ["b:1", "tcp://a:1"]', "router.master", "is the address of this router"),
    ('[master]\nlisten = "a:1"\nadmin = "a:1"', "master.admin", "is the address of this master for accounting"),
    ('[master]\nstore = "redis://a"\nsnapshot = "b"', "master", "set only one of them"),
    ('[router]\nlisten = "a:1"\nadmin = "a:2"', "router.admin", "'a:2' is the address of this router for control"),
    ('[sidecar]\nmaster = ["a:1", "a:1"]', "sidecar.master", "'a:1' is listed twice"),
    ('[sidecar]\ndomain = ["a", ""]', "sidecar.domain", "invalid domain name ''"),
    ('[sidecar]\ndomain = ["a", "a"]', "sidecar.domain", "'a' is listed twice"),
    ('[sidecar]\nnginx_lua = "a"\nauth_request = "b"', "sidecar", "`nginx_lua` and `auth_request` exclude each other"),
    (f'{SMOCKRON}store = "redis://h"', "domain[0].algorithm", "use 'gcra'"),
    (f'{SMOCKRON}rlqs = "127.0.0.1:0"', "domain[0].algorithm", "'smockron'"),
    ('[sidecar]\ndomain = ["a", "b"]\nhaproxy = "c"', "sidecar", "HAProxy has one domain, got 2"),
    ('[sidecar]\nsocket_mode = "rw"', "sidecar.socket_mode", "invalid mode 'rw'; expected permissions in octal"),
    ("[sidecar]\nsocket_mode = 0o666", "sidecar.socket_mode", "expected a text, got 438"),
    (
        f'[sidecar]\nnginx_lua = "{"a" * 108}"',
        "sidecar.nginx_lua",
        f"has 108 bytes; the path of a unix socket has at most {107 if sys.platform == 'linux' else 103}",
    ),
    ('[sidecar]\nnginx_lua = "a\\u0000b"', "sidecar.nginx_lua", "invalid path 'a\\x00b' of a unix socket"),
    ('[gate]\nshard = "identifier"', "gate.shard", "over several masters, got 0"),
    ('[sidecar]\nmaster = "a:1"\nshard = "identifier"', "sidecar.shard", "list them in `master`"),
    ("[sidecar]\nrejection_status = 500", "sidecar.rejection_status", "503, 429"),
    ('[gate]\nshard = "client"', "gate.shard", "domain, identifier"),
    ("gate = 3", "gate", "expected a table"),
    ("[[domain]]", "domain[0]", "the key 'name' is missing"),
    ('[domain]\nname = "a"', "domain", "got a table; write [[domain]] for each, in place of [domain]"),
    ("domain = [3]", "domain[0]", "expected a table"),
    ('[[domain]]\nname = "a"\nrules = ["1/s", "10 per fortnite"]', "domain[0].rules[1]", "'10 per fortnite'"),
    ('[[domain]]\nname = "a"\nrules = "1/s"', "domain[0].rules", "expected a list"),
    ('[[domain]]\nname = "a"\nalgorithm = "leaky"', "domain[0].algorithm", "gcra, log, smockron"),
    ('[[domain]]\nname = "a"\nexempt = ["a/b"]', "domain[0]", "'a/b'"),
    ('[[domain]]\nname = ""', "domain[0]", "invalid domain name"),
    ('[[domain]]\nname = "a"\n[[domain]]\nname = "a"', "domain[1].name", "already used"),
    ('[gate.tls]\ncert = "a.pem"', "gate.tls", "needs its key"),
    ('[master]\nlisten = "a:65535"', "master.listen", "control"),
    ('[[advice]]\nuser_agent = "a"\nfraction = 2', "advice[0].fraction", "from 0 to 1 or 'auto', got 2"),
    ('[[advice]]\nuser_agent = "a"\nfraction = "x"', "advice[0].fraction", "a number from 0 to 1 or 'auto', got 'x'"),
    ('[[advice]]\nuser_agent = "a"\nfraction = "auto"', "advice[0].fraction", "needs advice.mode"),
    ('[[advice]]\nuser_agent = " "', "advice[0].user_agent", "empty"),
    ('[[advice]]\nuser_agent = "a"\n[[advice]]\nuser_agent = "a"', "advice[1].user_agent", "appears twice"),
    ("[limit.concurrency]\nmax = 1.5", "limit.concurrency.max", "or 'learned', got 1.5"),
    ("[limit.concurrency]\nqueue = 1979-05-27", "limit.concurrency.queue", "got a date or time"),
    ('[limit.concurrency]\nmax = "learned"', "limit.concurrency.healthy_latency", "such as healthy_latency = 0.2"),
    ('[advice]\nmode = "off"', "advice.mode", "expected one of static, monitor, adaptive, got 'off'"),
    ('[advice]\nmode = "adaptive"', "advice", "needs `capacity`"),
    ('[advice]\ncapacity = "5/s burst 3"', "advice.capacity", "invalid capacity '5/s burst 3'; expected a rate"),
    (f'{COMPUTED}[[advice.entry]]\nuser_agent = "a"', "advice", "needs an entry with fraction 'auto'"),
    (f"{COMPUTED}{ENTRY}disallow = true", "advice.entry[0]", "excludes fraction 'auto'"),
    (f'{COMPUTED}{ENTRY}domains = ["a"]', "advice.entry[0].domains", "unknown domain 'a'; expected one of: none"),
    (f'{COMPUTED}{ENTRY}domains = ["a", "a"]\n{ALSO}', "advice.entry[0].domains", "'a' belongs to an entry already"),
    (f"{LEARNED}[limit.concurrency]\nmax = 5", "advice.capacity", "needs limit.concurrency.max 'learned', got 5"),
    ('[proxy]\nlisten = "nowhere"', "proxy.listen", "127.0.0.1:8080"),
    ('[proxy]\nadmin = "a"', "proxy.admin", "127.0.0.1:8080"),
    ('[proxy]\nclient_rate = "often"', "proxy.client_rate", "'often'"),
    ('[proxy]\nkey = "a.pem"', "proxy", "needs its key"),
    ("[proxy]\nself_signed = true\nplaintext = true", "proxy", "exclude each other"),
    ("[proxy]\nmax_tunnels = 0", "proxy.max_tunnels", "from 1 to"),
    ("[limit.concurrency]\nqueue = 1000001", "limit.concurrency.queue", "to 1,000,000, got 1000001"),
    ("[proxy]\nmax_tunnels = 10000001", "proxy.max_tunnels", "to 10,000,000, got 10000001"),
    ("[advice]\nmax_age = 172801", "advice.max_age", "to 172,800, got 172801"),
    ("[proxy]\nallow_ports = [65536]", "proxy.allow_ports[0]", "expected a whole number from 1 to 65,535, got 65536"),
    ("[gate", "not TOML", "end of document"),
    ("a = " + "[" * 5000, "not TOML", "deeply"),
]


def test_an_invalid_value_is_one_sentence_with_file_and_path():
    wrong = []
    for text, path, words in INVALID:
        with pytest.raises(ConfigurationError) as caught:
            parse(text, name="some.toml")
        error = str(caught.value)
        if not error.startswith(f"some.toml: {path}") or words not in error or "\n" in error:
            wrong.append((text, error))
    assert wrong == []


def test_values_that_flags_set_are_checked_like_those_of_a_file():
    tree = Configuration()
    with pytest.raises(ConfigurationError, match=r"gate\.workers: expected a whole number from 1 to 256, got 0"):
        check(replace(tree, gate=replace(tree.gate, workers=0)))


@pytest.mark.parametrize("address", ["10.0.0.5:10004", "tcp://10.0.0.5:10004", "ipc:///run/master"])
def test_each_table_accepts_each_form_of_the_address_of_a_master(address):
    tree = parse("".join(f'[{table}]\nmaster = "{address}"\n' for table in ("gate", "sidecar", "router")))
    assert tree.gate.masters == tree.sidecar.masters == tree.router.masters == (address,)


LONG_LOG = '[[domain]]\nname = "{}"\nrules = ["{}"]\nalgorithm = "log"\n'


def test_warning_is_logged_for_each_domain_with_a_long_log():
    lines = []
    log_warnings(parse(LONG_LOG.format("a", "20000/h") + LONG_LOG.format("b", "1/s")), lines.append)
    assert len(lines) == 1
    assert "'a'" in lines[0]


@pytest.mark.parametrize(
    ("text", "shared", "warned"),
    [
        ("", False, False),
        ("", True, True),
        ("[gate]\nworkers = 2\n", False, True),
        ('[gate]\nmaster = "tcp://127.0.0.1:10004"\n', False, True),
        ('[master]\nstore = "redis://127.0.0.1:6379"\n', False, True),
    ],
)
def test_warning_is_logged_for_the_algorithm_log_that_gatekeepers_share(text, shared, warned):
    lines = []
    log_warnings(parse(text + LONG_LOG.format("a", "500/s")), lines.append, shared=shared)
    assert [line.startswith("warning: domain 'a': with the algorithm log, several") for line in lines] == (
        [True] if warned else []
    )
