"""Values: tuples whose places have names, which never change.

To whoever uses them, and to a type checker, they are what `typing.NamedTuple` makes. The library compiles a constructor
of its own for every such class, and a call has some sixty of them: that took longer than all else that is ours. Here
one constructor serves them all.
"""

import sys
from collections.abc import Iterable
from operator import itemgetter
from typing import TYPE_CHECKING, Any

# From there on a class body no longer shows its annotations, and the library alone knows how to ask for them.
if TYPE_CHECKING or sys.version_info >= (3, 14):
    from typing import NamedTuple as Value
else:

    def _new(cls: Any, /, *given: Any, **named: Any) -> Any:
        if named or len(given) != len(cls._fields):
            given = _completed(cls, given, named)
        return tuple.__new__(cls, given)

    def _completed(cls: Any, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """What was given by place, then by name, then what stands in the class."""
        values = {**cls._field_defaults, **dict(zip(cls._fields, given, strict=False)), **named}
        wrong = [field for field in cls._fields if field not in values]
        wrong += [name for name in named if name not in cls._fields[len(given) :]]
        if wrong or len(given) > len(cls._fields):
            raise TypeError(f"{cls.__name__} takes {', '.join(cls._fields)}; wrong: {', '.join(wrong) or len(given)}")
        return tuple(values[field] for field in cls._fields)

    def _make(cls: Any, values: Iterable[Any]) -> Any:
        return cls(*values)

    def _replace(self: Any, /, **changes: Any) -> Any:
        result = tuple.__new__(type(self), map(changes.pop, self._fields, self))
        if changes:
            raise ValueError(f"{type(self).__name__} has no {', '.join(changes)}")
        return result

    def _asdict(self: Any) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def _getnewargs(self: Any) -> tuple[Any, ...]:
        return tuple(self)

    def _repr(self: Any) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._asdict().items())})"

    _COMMON = {
        "__slots__": (),
        "__new__": _new,
        "__repr__": _repr,
        "__getnewargs__": _getnewargs,
        "_make": classmethod(_make),
        "_replace": _replace,
        "_asdict": _asdict,
    }

    class _Values(type):
        """Makes plain classes, so that asking whether something is one of them stays as fast as it can be."""

        def __new__(mcs, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(mcs, name, bases, body)
            fields = tuple(body.get("__annotations__", ()))
            defaults = {field: body[field] for field in fields if field in body}
            places = {field: property(itemgetter(place)) for place, field in enumerate(fields)}
            about = {"_fields": fields, "_field_defaults": defaults, "__match_args__": fields}
            return type(name, (tuple,), {**_COMMON, **body, **places, **about})

    class Value(metaclass=_Values):
        """What such a class names as its base."""


__all__ = ["Value"]
