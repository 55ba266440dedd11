import asyncio
import sys

import pytest
import uvloop

from headgate.errors import MissingExtra
from headgate.runtime.event_loop import run

LOOPS = {"auto": uvloop.Loop, "uvloop": uvloop.Loop, "asyncio": asyncio.SelectorEventLoop}


async def on(kind):
    return 0 if isinstance(asyncio.get_running_loop(), kind) else 1


@pytest.mark.parametrize("loop", LOOPS)
def test_loop_is_the_configured_one(loop):
    assert run(lambda: on(LOOPS[loop]), loop=loop) == 0


class TestWithoutUvloop:
    @pytest.fixture(autouse=True)
    def _without(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "uvloop", None)

    def test_auto_is_asyncio(self):
        assert run(lambda: on(asyncio.SelectorEventLoop)) == 0

    def test_uvloop_by_name_is_refused_with_the_extra_to_install(self):
        with pytest.raises(MissingExtra) as caught:
            run(lambda: on(asyncio.SelectorEventLoop), loop="uvloop")
        assert str(caught.value) == (
            "gate.loop = 'uvloop' needs the extra 'uvloop'; "
            "install it in a checkout of headgate: pip install '.[uvloop]'"
        )
