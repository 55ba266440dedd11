"""Classes that a scenario names: `module:Class` of an importable module, `file.py:Class` of a file beside the scenario.

Such code is run as it is; a scenario file is trusted like a program.
"""

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Final

from headgate.config.toml_reader import nearest_key
from headgate.errors import ConfigurationError

_EXAMPLE: Final = "module:Class or file.py:Class"


def is_user_class(name: str) -> bool:
    """Return whether a name in a scenario is that of a user's class, not one of the package."""
    return ":" in name


def load_user_class(name: str, folder: str) -> type:
    """Import the class `module:Class`, or `file.py:Class` relative to `folder`; each file is run once per process.

    Raises `ConfigurationError` with the name and the reason.
    """
    place, _, class_name = name.rpartition(":")
    if not place or not class_name.isidentifier():
        raise ConfigurationError(f"{name!r}: expected {_EXAMPLE}")
    try:
        module = _module_of_file(Path(folder, place)) if place.endswith(".py") else _module(place)
    except ConfigurationError as error:
        raise ConfigurationError(f"{name!r}: {error}") from None
    found = getattr(module, class_name, None)
    if found is None:
        classes = [key for key, value in vars(module).items() if isinstance(value, type)]
        raise ConfigurationError(
            f"{name!r}: no class {class_name!r} in {place}; {nearest_key(class_name, classes)}".replace(
                "the keys are", "it has"
            )
        )
    if not isinstance(found, type):
        raise ConfigurationError(f"{name!r}: {class_name!r} is not a class; expected {_EXAMPLE}")
    return found


def _module(name: str) -> ModuleType:
    sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"no module named {error.name!r}; a file is named with .py") from None
    except Exception as error:
        raise ConfigurationError(describe_error(error)) from None
    finally:
        sys.path.remove("")


def _module_of_file(path: Path) -> ModuleType:
    name = f"headgate_lab_user:{path.absolute()}"
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise ConfigurationError(f"no file {str(path)!r}")
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module  # dataclasses and pickle look their module up by name
    try:
        specification.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ConfigurationError(describe_error(error)) from None
    return module


def describe_error(error: BaseException) -> str:
    """Return an exception of a user's code in one sentence: its type, text, file, line and function."""
    text = " ".join(str(error).split())
    described = f"{type(error).__name__}: {text}" if text else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError) or not frames:
        return described
    last = frames[-1]
    return f"{described} ({last.filename}, line {last.lineno}, in {last.name})"
