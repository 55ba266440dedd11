import asyncio
import time

import msgspec
import pytest
import zmq

from headgate.config import parse
from headgate.errors import ConfigurationError
from headgate.link.curve import new_key_pair
from headgate.observe import RouterState
from headgate.runtime.router import RouterServer, read_keys, require_masters
from tests.unit.runtime import serving
from tests.unit.runtime.serving import reading


def text(*masters, listen="127.0.0.1:0", more=""):
    listed = ", ".join(f'"{master}"' for master in masters or ("127.0.0.1:9",))
    return f'[router]\nlisten = "{listen}"\nmaster = [{listed}]\n{more}'


async def test_state_of_masters_and_domains():
    async with serving.running(lambda: RouterServer(reading(text()))) as (lifecycle, _):
        link = lifecycle._server._link
        with zmq.Context() as context, context.socket(zmq.PUB) as gatekeeper:
            gatekeeper.connect(link.endpoints.accounting)
            frames = [b"api\xff\0", b"ACCEPTED", b"id", b"%d" % (time.time() * 1_000), b"", b""]
            deadline = time.monotonic() + 10
            # Without a master the router subscribes to nothing, so the socket is asked to do so here.
            link.accounting.subscribe(b"")
            while not (state := await lifecycle._server.state(whole=True)).domains:
                assert time.monotonic() < deadline
                gatekeeper.send_multipart(frames)
                await asyncio.sleep(0.005)
            gatekeeper.linger = 0
        assert [(one.address, one.up) for one in state.masters] == [("127.0.0.1:9", False)]
        assert [(one.name, one.master) for one in state.domains] == [("api\\xff", "")]
        assert state.counters["router_unrouted"]["no_master"] == state.counters["router_accounted"] > 0
        assert msgspec.json.decode(msgspec.json.encode(state), type=RouterState) == state


def test_a_configuration_without_a_master_is_an_error():
    with pytest.raises(ConfigurationError, match="no master: add --master"):
        require_masters(parse(""))


@pytest.fixture
def files(tmp_path):
    """Return the names of a secret and a public key file."""
    pair = new_key_pair()
    for name, key in (("secret", pair.secret), ("public", pair.public)):
        (tmp_path / name).write_bytes(key + b"\n")
    return tmp_path / "secret", tmp_path / "public"


def test_keys_are_for_gatekeepers_or_masters_or_both(files):
    secret, public = files
    own = f'curve_key = "{secret}"\n'
    allow, server = f'curve_allow = "{public}"\n', f'curve_server = "{public}"\n'
    masters = ("127.0.0.1:9", "127.0.0.1:11")
    keys, to_masters = read_keys(parse(text(*masters, more=own + allow)))
    assert keys is not None
    assert to_masters == [None, None]
    keys, to_masters = read_keys(parse(text(*masters, more=own + server)))
    assert keys is None
    assert len(to_masters) == 2
    assert None not in to_masters
    assert read_keys(parse(text())) == (None, [None])
    for more, words in ((own, "router.curve_key needs router.curve_allow"), (allow, "needs router.curve_key")):
        with pytest.raises(ConfigurationError, match=words):
            read_keys(parse(text(more=more)))
