"""`headgate proxy`: tokens, and errors of usage."""

import signal
import socket
import ssl

import pytest

from tests.e2e import programs
from tests.e2e.proxy_setup import proxy

WORKERS = pytest.mark.parametrize("workers", [1, 2])


def token(folder, *words, group="token"):
    """Run `headgate token` or another group, and give what it prints."""
    ran = programs.command(group, *words, folder=folder)
    assert ran.code == 0, ran.err
    return ran.out.split()


def bearer(shown):
    return f"Proxy-Authorization: Bearer {shown}\r\n"


@WORKERS
def test_tokens_open_one_tunnel_each(tmp_path, workers):
    token(tmp_path, "new-token", "-o", "key.json", group="keys")
    with proxy(tmp_path, "--token-key", tmp_path / "key.json", "--workers", workers) as running:
        origin = f"https://www.example.org:{running.origin.port}"
        minted = token(tmp_path, "mint", "--key", "key.json", "--count", 2)
        (bound,) = token(tmp_path, "mint", "--key", "key.json", "--origin", origin)
        (elsewhere,) = token(tmp_path, "mint", "--key", "key.json", "--origin", "https://www.example.org")
        (expired,) = token(tmp_path, "mint", "--key", "key.json", "--ttl", 1)

        def reason(shown):
            answer = running.ask(more=bearer(shown) if shown else "")
            if answer.status == 200:
                return "opened"
            assert answer.status == 407
            assert answer.fields["retry-after"] == "0"
            assert answer.fields["proxy-authenticate"].startswith('Bearer realm="headgate"')
            return answer.reason

        assert reason("") == "token_missing"
        assert reason(elsewhere) == "token_invalid"
        assert running.origin.asked == []
        assert [reason(shown) for shown in minted] == ["opened"] * 2
        assert reason(bound) == "opened"
        # Whichever worker is met: what one has seen, the others know.
        assert [reason(shown) for shown in (*minted, bound) * 4] == ["token_replayed"] * 12
        running.program.until(lambda: reason(expired) == "token_expired", "end of a token")
        said = running.program.said()
        assert not any(shown in said for shown in (*minted, bound, elsewhere, expired))


def test_keys_are_rotated_without_refusals(tmp_path):
    token(tmp_path, "new-token", "-o", "old.json", group="keys")
    token(tmp_path, "new-token", "-o", "new.json", group="keys")
    used = tmp_path / "used.json"
    used.write_bytes((tmp_path / "old.json").read_bytes())
    flags = ("--token-key", used, "--token-key", tmp_path / "old.json")
    with proxy(tmp_path, *flags, admin=False) as running:
        (of_new,) = token(tmp_path, "mint", "--key", "new.json")
        assert running.ask(more=bearer(of_new)).reason == "token_invalid"
        used.write_bytes((tmp_path / "new.json").read_bytes())
        running.program.process.send_signal(programs.signal.SIGHUP)
        running.program.wait_for("read again$")
        (of_old,) = token(tmp_path, "mint", "--key", "old.json")
        assert [running.ask(more=bearer(shown)).status for shown in (of_new, of_old)] == [200, 200]


# Wrong uses.


def run(folder, *words):
    """Run `headgate proxy` to its end; give the exit code, and what it said on stdout and stderr."""
    return programs.command("proxy", *words, folder=folder)


def test_without_a_certificate_it_serves_on_loopback_with_a_self_signed_one(tmp_path):
    with programs.headgate(tmp_path, "proxy", "--listen", "127.0.0.1:0") as running:
        assert running.ready["address"].startswith("https://127.0.0.1:")
        assert "self-signed certificate" in running.said()
        untrusting = ssl.create_default_context()
        untrusting.check_hostname, untrusting.verify_mode = False, ssl.CERT_NONE
        untrusting.set_alpn_protocols(["h2", "http/1.1"])
        with socket.create_connection(("127.0.0.1", running.port)) as plain, untrusting.wrap_socket(plain) as sock:
            assert (sock.version(), sock.selected_alpn_protocol()) == ("TLSv1.3", "h2")
        running.process.send_signal(signal.SIGHUP)
        assert "a restart is needed" not in running.wait_for(r"read again.*$")[0]
        assert running.end() == 0
    assert list(tmp_path.glob("headgate-*/")) == []
