import pytest

from headgate.config.environment import Setting, read_environment, variables
from headgate.errors import ConfigurationError


def read(tmp_path, **environ):
    warnings = []
    secret = tmp_path / "secret"
    secret.write_text("redis://a:b@c/0\n")
    (tmp_path / "binary").write_bytes(b"\xff")
    found = {name: value.format(secret=secret, folder=tmp_path) for name, value in environ.items()}
    return read_environment(found, warnings.append), warnings


@pytest.mark.parametrize(
    ("variable", "text", "path", "value"),
    [
        ("GATE_LISTEN", "127.0.0.1:1", "gate.listen", "127.0.0.1:1"),
        ("GATE_ADMIN", "", "gate.admin", ""),
        ("GATE_TIMEOUTS_RESPONSE", "30", "gate.timeouts.response", 30.0),
        ("GATE_WORKERS", "4", "gate.workers", 4),
        ("LIMIT_CONCURRENCY_MAX", "learned", "limit.concurrency.max", "learned"),
        ("LIMIT_CONCURRENCY_MAX", "64", "limit.concurrency.max", 64),
        ("PROXY_PLAINTEXT", "true", "proxy.plaintext", True),
        ("PROXY_ALLOW_PORTS", "443, 8443", "proxy.allow_ports", (443, 8443)),
        ("GATE_TRUSTED_PROXIES", "10.0.0.0/8,::1,", "gate.trusted_proxies", ("10.0.0.0/8", "::1")),
        ("GATE_TRUSTED_PROXIES", "", "gate.trusted_proxies", ()),
        ("GATE_MASTER", "a:1", "gate.master", "a:1"),
        ("GATE_MASTER", "a:1,b:2", "gate.master", ("a:1", "b:2")),
        ("MASTER_STORE", "redis+cluster://a,b", "master.store", "redis+cluster://a,b"),
        ("MASTER_STORE_FILE", "{secret}", "master.store", "redis://a:b@c/0"),
    ],
)
def test_a_variable_sets_its_key(tmp_path, variable, text, path, value):
    assert read(tmp_path, **{f"HEADGATE_{variable}": text}) == ({path: Setting(f"HEADGATE_{variable}", value)}, [])


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("GATE_WORKERS", "x", ": expected a whole number from 1 to 256, got 'x'"),
        ("GATE_WORKERS", "999", ": expected a whole number from 1 to 256, got '999'"),
        ("GATE_LOOP", "z", ": expected one of auto, uvloop, asyncio, got 'z'"),
        ("GATE_ADMIN", "y", ": invalid address 'y'; expected HOST:PORT"),
        ("PROXY_PLAINTEXT", "maybe", ": expected true or false, got 'maybe'"),
        ("PROXY_ALLOW_PORTS", "1,q", r"\[1\]: expected a whole number from 1 to 65,535, got 'q'"),
        ("LIMIT_CONCURRENCY_MAX", "", ": expected a whole number from 0 to 1,000,000 or 'learned', got ''"),
        ("MASTER_STORE_FILE", "{folder}/absent", ": .*/absent: No such file or directory; name a readable file"),
        ("MASTER_STORE_FILE", "{folder}/binary", ": .*/binary: byte 0 is not UTF-8"),
        ("GATE_WORKERS_FILE", "{secret}", ": expected a whole number"),
    ],
)
def test_an_invalid_value_names_its_variable(tmp_path, variable, text, message):
    with pytest.raises(ConfigurationError, match=f"^HEADGATE_{variable}{message}"):
        read(tmp_path, **{f"HEADGATE_{variable}": text})


def test_a_value_is_not_given_twice(tmp_path):
    with pytest.raises(ConfigurationError, match="HEADGATE_MASTER_STORE_FILE: HEADGATE_MASTER_STORE is set too"):
        read(tmp_path, HEADGATE_MASTER_STORE="memory", HEADGATE_MASTER_STORE_FILE="{secret}")


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("HEADGATE_LISTEN", "did you mean HEADGATE_GATE_LISTEN?"),
        ("HEADGATE_GATE_TIMEOUT_RESPONSE", "did you mean HEADGATE_GATE_TIMEOUTS_RESPONSE?"),
        ("HEADGATE_DOMAIN_NAME", "see: headgate config show --help"),
        ("HEADGATE_TRACEBACK", None),
        ("HEADGATE_GATE_SERVICE_HOST", None),
        ("HEADGATE_PORT_80_TCP_ADDR", None),
        ("headgate_gate_listen", None),
    ],
)
def test_an_unknown_variable_is_a_warning(tmp_path, variable, hint):
    found, warnings = read(tmp_path, **{variable: "tcp://10.0.0.1:80"})
    assert (found, warnings) == ({}, [f"{variable}: unknown variable; {hint}"] if hint else [])


def test_each_key_has_a_variable_of_its_own():
    keys = variables()
    assert {"gate.tls.cert", "limit.concurrency.max", "admin.hosts", "advice.mode"} <= set(keys.values())
    assert not [path for path in keys.values() if path.split(".")[0] in {"domain", "bundle"} or path == "advice.entry"]
    assert len(set(keys.values())) == len(keys)
    assert not {f"{variable}_FILE" for variable in keys} & keys.keys()
