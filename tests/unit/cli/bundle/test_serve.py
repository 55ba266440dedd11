import pytest

from headgate.errors import FormatError
from headgate.runtime import bundle_server


@pytest.fixture
def served(monkeypatch):
    """Record the calls of the server instead of running it; `error` is raised, `code` is returned."""

    class Server:
        def __init__(self):
            self.calls = []
            self.error = None
            self.code = 0

        def __call__(self, path, **options):
            self.calls.append((path, options))
            if self.error is not None:
                raise self.error
            return self.code

    server = Server()
    monkeypatch.setattr(bundle_server, "run_bundle_server", server)
    return server


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        ("", {"listen": "127.0.0.1:8080", "unpack": False, "profile": "strict"}),
        ("--unpack --listen a:0 --profile compat", {"listen": "a:0", "unpack": True, "profile": "compat"}),
    ],
)
def test_flags_become_options_of_the_server(run, served, flags, options):
    assert run("serve", "site.wbn", *flags.split()).code == 0
    assert served.calls == [("site.wbn", options)]


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (FormatError("not a bundle", step="3.3 step 2", offset=0), 1, "3.3 step 2"),
        (FileNotFoundError(2, "No such file or directory"), 2, "No such file"),
    ],
)
def test_file_that_cannot_be_served_is_a_one_line_error(run, served, error, code, message):
    served.error = error
    found = run("serve", "site.wbn")
    assert found.code == code
    assert found.err.startswith("headgate: site.wbn: ")
    assert message in found.err
    assert found.err.count("\n") == 1


def test_exit_code_is_that_of_the_server(run, served):
    served.code = 3
    assert run("serve", "site.wbn").code == 3
