import asyncio
import sys

import pytest
import uvloop

from headgate.cli.running import run
from headgate.errors import MissingExtra

LOOPS = {"auto": uvloop.Loop, "uvloop": uvloop.Loop, "asyncio": asyncio.SelectorEventLoop}


async def on(kind):
    return 0 if isinstance(asyncio.get_running_loop(), kind) else 1


@pytest.mark.parametrize("loop", LOOPS)
def test_the_loop_is_the_one_asked_for(loop):
    assert run(lambda: on(LOOPS[loop]), loop=loop) == 0


class TestWithoutUvloop:
    @pytest.fixture(autouse=True)
    def _without(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "uvloop", None)

    def test_auto_is_the_loop_of_asyncio(self):
        assert run(lambda: on(asyncio.SelectorEventLoop)) == 0

    def test_asked_for_by_name_it_is_missed_in_one_sentence_that_names_the_extra(self):
        with pytest.raises(MissingExtra) as caught:
            run(lambda: on(asyncio.SelectorEventLoop), loop="uvloop")
        assert str(caught.value) == (
            "gate.loop = 'uvloop' needs the extra 'uvloop'; install it with: pip install 'headgate[uvloop]'"
        )
