"""Classes that a scenario names: `module:Class` of an importable module, `file.py:Class` of a file.

A file is looked for beside the scenario, and then in the working directory; a module also in the working directory.

Such code is run as it is; a scenario file is trusted like a program.
"""

import importlib
import importlib.util
import sys
import traceback
from contextlib import redirect_stdout
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
    """Import the class `module:Class`, or `file.py:Class` with the scenario's `folder`; each file is run once.

    Raises `ConfigurationError` with the name and the reason.
    """
    place, _, class_name = name.rpartition(":")
    if not place or not class_name.isidentifier():
        raise ConfigurationError(f"policy {name!r}: expected {_EXAMPLE}")
    try:
        with redirect_stdout(sys.stderr):
            module = _module_of_file(place, folder) if place.endswith(".py") else _module(place)
    except ConfigurationError as error:
        raise ConfigurationError(f"policy {name!r}: {error}") from None
    found = getattr(module, class_name, None)
    if found is None:
        classes = [key for key, value in vars(module).items() if isinstance(value, type)]
        near = nearest_key(class_name, classes).replace("the keys are", "it has") if classes else "it has no classes"
        raise ConfigurationError(f"policy {name!r}: no class {class_name!r} in {place}; {near}")
    if not isinstance(found, type):
        raise ConfigurationError(f"policy {name!r}: {class_name!r} is not a class; expected {_EXAMPLE}")
    return found


def _module(name: str) -> ModuleType:
    sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"no module named {error.name!r}; a file is named with .py") from None
    except (Exception, SystemExit) as error:
        raise ConfigurationError(describe_error(error)) from None
    finally:
        sys.path.remove("")


def _module_of_file(file: str, folder: str) -> ModuleType:
    path = next((path.absolute() for path in (Path(folder, file), Path(file)) if path.is_file()), None)
    if path is None:
        raise ConfigurationError(f"no file {file!r} in {folder!r} or the working directory")
    name = f"headgate_lab_user:{path}"
    if name in sys.modules:
        return sys.modules[name]
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module  # dataclasses and pickle look their module up by name
    try:
        specification.loader.exec_module(module)
    except (Exception, SystemExit) as error:
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
