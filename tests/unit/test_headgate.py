"""The names that `headgate` itself has, and what importing it costs."""

import subprocess
import sys

import headgate


def test_each_name_is_the_one_of_its_package():
    from headgate import agent, bundle, errors, limit
    from headgate.origin import asgi

    homes = (agent, bundle, errors, limit, asgi)
    for name in set(headgate.__all__) - {"__version__"}:
        found = [getattr(home, name) for home in homes if hasattr(home, name)]
        assert found, name
        assert all(getattr(headgate, name) is each for each in found), name


def test_unknown_name_is_an_attribute_error():
    assert not hasattr(headgate, "Nothing")


def test_importing_headgate_imports_its_version_only():
    program = "import sys, headgate; print(*(name for name in sys.modules if name.startswith('headgate.')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["headgate.version"]


def test_middleware_can_be_made_from_these_names_alone():
    domain = headgate.Domain("api", (headgate.Rule.parse("10/s"),))
    headgate.GatekeeperMiddleware(print, gatekeeper=headgate.Gatekeeper.embedded([domain]))
