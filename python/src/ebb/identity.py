"""Identifies a policy, a prompt or a judge in Python, so that answers of different ones are never merged.

Two objects have one identity only if their code, the values that it was made with (closures, defaults, arguments of
`functools.partial`, attributes) and the helpers of its own module are the same.
"""

from __future__ import annotations

import builtins
import enum
import functools
import hashlib
import types
from typing import Any, Callable, Iterator, NamedTuple

import numpy as np

from .errors import InvalidArgument

_NO_PART_OF_A_CLASS = {"__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__firstlineno__",
                       "__static_attributes__", "__annotations__", "__annotate__", "__annotate_func__",
                       "__abstractmethods__", "__parameters__"}


class Identity(NamedTuple):
    """`name` is for tables; `code` differs wherever the answers may: "my_module.Peak#1f3a9c02b7de"."""

    name: str
    code: str


class _Unknown(Exception):
    """An object that the identity cannot include, since its value cannot be determined."""


class _Description:
    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []  # so that no address is used twice

    def of(self, value: Any) -> Any:
        """Nested tuples of texts and numbers."""
        if value is None or value is ... or isinstance(value, (bool, int, float, complex, str, bytes)):
            return type(value).__name__, repr(value)
        if id(value) in self.seen:
            return "seen", self.seen[id(value)]
        self.seen[id(value)] = len(self.seen)
        self.kept.append(value)
        if isinstance(value, (tuple, list)):
            return type(value).__name__, [self.of(one) for one in value]
        if isinstance(value, (set, frozenset)):
            return type(value).__name__, sorted(repr(_Description().of(one)) for one in value)
        if isinstance(value, dict):
            return "dict", [(self.of(key), self.of(one)) for key, one in value.items()]
        if isinstance(value, (np.ndarray, np.generic)):
            array = np.ascontiguousarray(value)
            if array.dtype.hasobject:
                raise _Unknown(value)
            return "array", str(array.dtype), array.shape, hashlib.sha256(array.tobytes()).hexdigest()
        return self.of_object(value)

    def of_object(self, value: Any) -> Any:
        if isinstance(value, enum.Enum):
            return "enum", type(value).__qualname__, value.name
        if isinstance(value, types.ModuleType):
            return "module", value.__name__
        if isinstance(value, types.CodeType):
            return "code", value.co_code.hex(), value.co_names, [self.of(one) for one in value.co_consts]
        if isinstance(value, functools.partial):
            return "partial", self.of(value.func), self.of(value.args), self.of(value.keywords)
        if isinstance(value, types.MethodType):
            return "method", self.of(value.__func__), self.of(value.__self__)
        if isinstance(value, types.FunctionType):
            return self.of_function(value)
        if isinstance(value, (staticmethod, classmethod)):
            return type(value).__name__, self.of(value.__func__)
        if isinstance(value, property):
            return "property", self.of(value.fget), self.of(value.fset)
        if isinstance(value, type):
            return self.of_class(value)
        if isinstance(value, (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
                              types.MemberDescriptorType, types.GetSetDescriptorType, np.ufunc)):
            return "built in", getattr(value, "__module__", None), getattr(value, "__qualname__", repr(value))
        try:
            reduced = value.__reduce_ex__(4)  # as it would be pickled: its class, arguments and state
        except Exception:
            raise _Unknown(value) from None
        if isinstance(reduced, str):
            return "named", type(value).__module__, reduced
        return "object", [self.of(list(part) if isinstance(part, Iterator) else part) for part in reduced]

    def of_function(self, value: types.FunctionType) -> Any:
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        used = {name: value.__globals__[name] for name in _names(value.__code__) if name in value.__globals__}
        return ("function", value.__module__, value.__qualname__, self.of(value.__code__), self.of(value.__defaults__),
                self.of(value.__kwdefaults__), [self.of(one) for one in cells],
                [(name, self.of_global(one, value.__module__)) for name, one in used.items()])

    def of_global(self, value: Any, module: str) -> Any:
        """Constants and helpers of the own module by their content, others by their name."""
        if isinstance(value, (type, types.FunctionType)) and value.__module__ != module:
            return "named", value.__module__, value.__qualname__
        try:
            return self.of(value)
        except _Unknown:
            return "variable", type(value).__qualname__

    def of_class(self, value: type) -> Any:
        if value.__module__.split(".")[0] in ("ebb", "typing", "abc") or vars(builtins).get(value.__name__) is value:
            return "class", value.__module__, value.__qualname__
        parts = {name: part for name, part in vars(value).items() if name not in _NO_PART_OF_A_CLASS}
        return ("class", value.__module__, value.__qualname__, [self.of(base) for base in value.__bases__],
                [(name, self.of(part)) for name, part in parts.items()])


def _names(code: types.CodeType) -> list[str]:
    """The global names that code and the functions inside it use."""
    names = list(code.co_names)
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            names += _names(one)
    return list(dict.fromkeys(names))


def _name_of(thing: Any) -> str:
    if isinstance(thing, functools.partial):
        values = [*map(repr, thing.args), *(f"{key}={value!r}" for key, value in thing.keywords.items())]
        return f"{_name_of(thing.func)}({','.join(values)})".replace(" ", "")
    name = getattr(thing, "__name__", None) or type(thing).__name__
    return "lambda" if name == "<lambda>" else name


def identity(thing: Any, argument: str) -> Identity:
    """The identity of a callable, or of a pair (name, callable), which the name alone identifies.

    Raises:
        InvalidArgument: it holds an object whose value cannot be determined; give the pair then.
    """
    if isinstance(thing, tuple):
        if len(thing) != 2 or not isinstance(thing[0], str) or not thing[0] or not callable(thing[1]):
            raise InvalidArgument(f"expected (name, callable), found {thing!r}", field=argument)
        return Identity(thing[0], thing[0])
    name = _name_of(thing)
    try:
        described = repr(_Description().of(thing))
    except _Unknown as unknown:
        held = unknown.args[0]
        raise InvalidArgument(
            f"{name} holds a {type(held).__name__}, whose value cannot be determined, so its answers could be taken "
            f'for those of another one; name it: ("{name} of ...", {name})', field=argument) from None
    module = getattr(thing, "__module__", None) or type(thing).__module__
    digest = hashlib.sha256(described.encode()).hexdigest()[:12]
    return Identity(name, f"{module}.{name}#{digest}")


def callable_of(thing: Any) -> Callable[..., Any]:
    return thing[1] if isinstance(thing, tuple) else thing
