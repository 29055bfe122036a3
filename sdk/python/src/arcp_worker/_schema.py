"""JSON Schemas of functions, and conversion of arguments to their annotations."""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import inspect
import sys
import types
import typing
from collections.abc import Callable
from typing import Any, Literal, Union

if sys.version_info >= (3, 11):
    from typing import NotRequired, Required
else:  # typing_extensions is not needed: Python 3.10 has totality of TypedDict only
    NotRequired = Required = object()

_SIMPLE: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    type(None): {"type": "null"},
    dict: {"type": "object"},
    list: {"type": "array"},
    tuple: {"type": "array"},
    Any: {},
    object: {},
    inspect.Parameter.empty: {},
}
_ARRAYS = (list, tuple, collections.abc.Sequence, collections.abc.Iterable)
_OBJECTS = (dict, collections.abc.Mapping)


class Parameters:
    """The parameters of a tool's function: its JSON Schema, and how to call it."""

    def __init__(self, function: Callable[..., Any], contexts: tuple[type, ...], schema: dict[str, Any] | None = None) -> None:
        hints = typing.get_type_hints(function, include_extras=True)
        self.context: str | None = None  # name of the parameter for the context
        self.context_type: type | None = None
        self.all_arguments: str | None = None  # name of a ``**`` parameter
        self.hints: dict[str, Any] = {}
        self._schema = schema
        self._properties: dict[str, Any] = {}
        self._required: list[str] = []
        for name, p in inspect.signature(function).parameters.items():
            hint = hints.get(name, p.annotation)
            if hint in contexts:
                self.context, self.context_type = name, hint
            elif p.kind is p.VAR_KEYWORD:
                self.all_arguments = name
            elif p.kind in (p.VAR_POSITIONAL, p.POSITIONAL_ONLY):
                raise TypeError(f"parameter {name} of {function.__qualname__} must be usable as a keyword")
            else:
                self._add(function, name, p, hint)

    def _add(self, function: Callable[..., Any], name: str, p: inspect.Parameter, hint: Any) -> None:
        self.hints[name] = hint
        if self._schema is not None:
            return
        try:
            schema = schema_of(hint)
        except TypeError as e:
            raise TypeError(f"parameter {name} of {function.__qualname__}: {e}; give the tool an input_schema") from None
        if p.default is p.empty:
            self._required.append(name)
        elif isinstance(p.default, (str, int, float, bool)) and not isinstance(p.default, enum.Enum):
            schema = schema | {"default": p.default}
        self._properties[name] = schema

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments."""
        if self._schema is not None:
            return self._schema
        schema: dict[str, Any] = {"type": "object", "properties": self._properties}
        if self._required:
            schema["required"] = self._required
        if self.all_arguments is None:
            schema["additionalProperties"] = False
        return schema

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments of a call."""
        for name in arguments:
            if name not in self.hints and self.all_arguments is None:
                raise TypeError(f"the function has no parameter {name}")
        return {name: convert(self.hints.get(name, Any), value) for name, value in arguments.items()}


def schema_of(hint: Any) -> dict[str, Any]:
    """Return the JSON Schema of an annotation. Raises TypeError for one that has none."""
    try:
        if hint in _SIMPLE:
            return dict(_SIMPLE[hint])
    except TypeError:  # not hashable, as some arguments of Literal and Annotated
        pass
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        schema = schema_of(args[0])
        for extra in args[1:]:
            schema |= {"description": extra} if isinstance(extra, str) else extra if isinstance(extra, dict) else {}
        return schema
    if origin in (Required, NotRequired):
        return schema_of(args[0])
    if origin is Literal:
        return {"enum": list(args)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(a) for a in args]}
    if origin in _ARRAYS:
        return _array(origin, args)
    if origin in _OBJECTS:
        if args[0] is not str:
            raise TypeError("the keys of a JSON object are str")
        return {"type": "object", "additionalProperties": schema_of(args[1])}
    if isinstance(hint, type):
        return _class(hint)
    raise TypeError(f"{hint!r} has no JSON Schema")


def _array(origin: Any, args: tuple[Any, ...]) -> dict[str, Any]:
    if origin is tuple and args[-1] is not Ellipsis:
        return {"type": "array", "prefixItems": [schema_of(a) for a in args], "minItems": len(args), "maxItems": len(args)}
    return {"type": "array", "items": schema_of(args[0])}


def _class(hint: type) -> dict[str, Any]:
    if issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    hints = typing.get_type_hints(hint, include_extras=True)
    if dataclasses.is_dataclass(hint):
        fields = [f for f in dataclasses.fields(hint) if f.init]
        names = [f.name for f in fields]
        required = [f.name for f in fields if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING]
    elif typing.is_typeddict(hint):
        names = list(hints)
        keys: frozenset[str] = getattr(hint, "__required_keys__")
        required = [name for name in names if name in keys]
    else:
        raise TypeError(f"{hint.__qualname__} has no JSON Schema")
    schema: dict[str, Any] = {"type": "object", "properties": {name: schema_of(hints[name]) for name in names}}
    if required:
        schema["required"] = required
    schema["additionalProperties"] = False
    return schema


def convert(hint: Any, value: Any) -> Any:
    """Return a JSON value as its annotation says: dataclasses, enums and tuples are made, numbers of
    float are floats, and all else is unchanged. Raises TypeError or ValueError."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Annotated, Required, NotRequired):
        return convert(args[0], value)
    if origin in (Union, types.UnionType):
        return _convert_union(args, value)
    if origin in _ARRAYS and isinstance(value, list):
        if origin is tuple:
            kinds = args if args[-1] is not Ellipsis else args[:1] * len(value)
            return tuple(convert(kind, item) for kind, item in zip(kinds, value, strict=True))
        return [convert(args[0], item) for item in value]
    if origin in _OBJECTS and isinstance(value, dict):
        return {key: convert(args[1], item) for key, item in value.items()}
    if not isinstance(hint, type):
        return value
    if issubclass(hint, enum.Enum):
        return hint(value)
    if hint is float and type(value) is int:
        return float(value)
    if hint is int and type(value) is float and value.is_integer():
        return int(value)  # 2.0 is an integer of JSON Schema
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        hints = typing.get_type_hints(hint, include_extras=True)
        return hint(**{key: convert(hints.get(key, Any), item) for key, item in value.items()})
    if typing.is_typeddict(hint) and isinstance(value, dict):
        hints = typing.get_type_hints(hint, include_extras=True)
        return {key: convert(hints.get(key, Any), item) for key, item in value.items()}
    return value


def _convert_union(kinds: tuple[Any, ...], value: Any) -> Any:
    """Return the value as the first kind that it fits."""
    for kind in kinds:
        try:
            if not fits(kind, value):
                continue
            return convert(kind, value)
        except (TypeError, ValueError):
            continue
    return value


_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "boolean": (bool,), "integer": (int,), "number": (int, float), "null": (type(None),),
    "object": (dict,), "array": (list,),
}


def fits(hint: Any, value: Any) -> bool:
    """Report whether the JSON type of a value is the one of an annotation."""
    schema = schema_of(hint)
    if "enum" in schema:
        return value in schema["enum"]
    if "anyOf" in schema:
        return True
    kinds = _JSON_TYPES.get(schema.get("type", ""))
    return kinds is None or isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
