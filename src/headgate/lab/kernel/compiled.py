"""The decorator of functions that numba compiles."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compile a function to machine code when it is first called.

    The code is not stored on disk. Numba's cache compares the file of a function, but not the files of the functions
    that it calls, so after an update it would run old code. It also needs a folder that is writable.
    """
    return cast(_Function, numba.njit(function))
