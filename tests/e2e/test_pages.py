"""The pages of a gate, as curl and a browser get them."""

import json
import signal

from tests.e2e import programs

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


def test_a_client_gets_html_json_or_text_from_templates_that_are_reloaded(tmp_path):
    (tmp_path / "rejected.html").write_text("<h1>{status} wait {retry_after}</h1>{reason} <i>{request_id}</i>")
    (tmp_path / "gate.toml").write_text(
        '[gate]\norigin = "http://127.0.0.1:1"\n[responses]\nrejected_html = "rejected.html"\n'
        '[[domain]]\nname = "api"\nrules = ["1/h burst 1"]\n'
    )
    with programs.gate(tmp_path, "--config", "gate.toml") as gate:
        failed = gate.get(**BROWSER)
        assert failed.status == 502
        assert f"Request ID {failed.headers['X-Request-Id']}" in failed.body.decode()
        assert "<p>The origin accepts no connection.</p>" in failed.body.decode()
        gate.until(lambda: gate.get().status == 503, "rejection")
        page = gate.get(**BROWSER)
        assert page.body.decode().startswith(f"<h1>503 wait {page.headers['Retry-After']}</h1>You have sent more ")
        assert page.body.decode().endswith(f"<i>{page.headers['X-Request-Id']}</i>")
        assert int(page.headers["Content-Length"]) == len(page.body)
        problem = gate.get(Accept="application/json")
        assert json.loads(problem.body)["instance"] == problem.headers["X-Request-Id"]
        text = gate.get()
        assert text.body.decode().endswith(f"\nRequest ID: {text.headers['X-Request-Id']}\n")
        (tmp_path / "rejected.html").write_text("<p>later</p>")
        gate.process.send_signal(signal.SIGHUP)
        gate.until(lambda: gate.get(**BROWSER).body == b"<p>later</p>", "new page")
        (tmp_path / "rejected.html").write_bytes(b"\xff")
        gate.process.send_signal(signal.SIGHUP)
        gate.wait_for(r"rejected_html: rejected.html: byte 0 is not UTF-8; .*the configuration in force stays")
        assert gate.get(**BROWSER).body == b"<p>later</p>"
