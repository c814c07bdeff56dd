"""Brings files of the checkouts in by path, and watches what they call."""
import contextlib
import importlib.util
import sys
import types


def stand_in(name, **holds):
    """A module for what a file imports and the part that is run does not need."""
    module = types.ModuleType(name)
    module.__path__ = []
    vars(module).update(holds)
    return module


def load(path, name, stand_ins=None):
    """The file at `path` as the module `name`; `stand_ins` by name, only while it is imported."""
    before = {other: sys.modules.get(other) for other in stand_ins or {}}
    sys.modules.update(stand_ins or {})
    try:
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        for other, was in before.items():
            if was is None:
                del sys.modules[other]
            else:
                sys.modules[other] = was


@contextlib.contextmanager
def watched(owner, name):
    """A list of (arguments, result), one for each call of owner.name; what it does is as before."""
    function, calls = getattr(owner, name), []

    def watching(*args, **kwargs):
        result = function(*args, **kwargs)
        calls.append((args, result))
        return result

    setattr(owner, name, watching)
    try:
        yield calls
    finally:
        setattr(owner, name, function)
