import asyncio
import sys

import pytest
import uvloop

from headgate.errors import MissingExtra
from headgate.runtime.event_loop import Reloads, run

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
            "gate.loop = 'uvloop' needs the extra 'uvloop'; "
            "install it in a checkout of headgate: pip install '.[uvloop]'"
        )


class TestReloads:
    """One at a time, and the last one last."""

    def run(self, steps, reload=None):
        """Give how often a reload began and ended while `steps` are taken with it."""
        counts = {"began": 0, "ended": 0}

        async def counted():
            counts["began"] += 1
            await (reload() if reload is not None else asyncio.sleep(0))
            counts["ended"] += 1

        async def main():
            await steps(Reloads(counted))

        asyncio.run(main())
        return counts

    def test_asked_meanwhile_it_reloads_once_more(self):
        async def steps(reloads):
            reloads.ask()
            reloads.ask()
            await asyncio.sleep(0)
            for _ in range(3):
                reloads.ask()
            for _ in range(10):
                await asyncio.sleep(0)

        assert self.run(steps) == {"began": 2, "ended": 2}

    def test_one_that_is_over_can_be_asked_for_again(self):
        async def steps(reloads):
            for _ in range(3):
                reloads.ask()
                for _ in range(5):
                    await asyncio.sleep(0)

        assert self.run(steps) == {"began": 3, "ended": 3}

    def test_an_end_cancels_it_and_there_is_no_other(self):
        async def steps(reloads):
            reloads.ask()
            await asyncio.sleep(0)
            await reloads.end()
            reloads.ask()
            for _ in range(5):
                await asyncio.sleep(0)

        assert self.run(steps, reload=lambda: asyncio.sleep(60)) == {"began": 1, "ended": 0}

    def test_an_end_without_a_reload_is_nothing(self):
        assert self.run(lambda reloads: reloads.end()) == {"began": 0, "ended": 0}

    def test_an_error_of_ours_is_one_line_and_the_next_one_runs(self, capsys):
        async def fail():
            raise KeyError("x")

        async def steps(reloads):
            for _ in range(2):
                reloads.ask()
                for _ in range(5):
                    await asyncio.sleep(0)

        assert self.run(steps, reload=fail) == {"began": 2, "ended": 0}
        assert capsys.readouterr().err == "headgate: internal error in a reload: KeyError: 'x'\n" * 2
