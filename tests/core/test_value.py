"""A value is what the library's named tuple is, to everybody who can ask it something."""

import copy
import pickle
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from subagent_cli.core.value import Value


class Ours(Value):
    """A place."""

    name: str
    number: int = 7
    more: tuple[str, ...] = ()

    @property
    def doubled(self) -> int:
        return self.number * 2


class Library(NamedTuple):
    name: str
    number: int = 7
    more: tuple[str, ...] = ()


BOTH: list[Any] = [Ours, Library]

ASKED: dict[str, Callable[[Any], Any]] = {
    "by place": lambda kind: tuple(kind("a", 1, ("b",))),
    "by name": lambda kind: tuple(kind(more=("b",), name="a", number=1)),
    "by both": lambda kind: tuple(kind("a", more=("b",))),
    "what is left out": lambda kind: tuple(kind("a")),
    "its places": lambda kind: (kind("a").name, kind("a").number, kind("a").more),
    "its fields": lambda kind: (kind._fields, kind._field_defaults, kind.__match_args__, kind.__annotations__),
    "as a dict": lambda kind: kind("a")._asdict(),
    "changed": lambda kind: tuple(kind("a")._replace(number=2)),
    "from a list": lambda kind: tuple(kind._make(["a", 1, ()])),
    "as text": lambda kind: repr(kind("a")).replace(kind.__name__, ""),
    "taken apart": lambda kind: [*kind("a")],
    "compared": lambda kind: (kind("a") == ("a", 7, ()), kind("a") < kind("b"), hash(kind("a")) == hash(("a", 7, ()))),
    "copied": lambda kind: (copy.copy(kind("a")) == kind("a"), type(copy.deepcopy(kind("a"))) is kind),
    "pickled": lambda kind: pickle.loads(pickle.dumps(kind("a"))) == kind("a"),
    "its kind": lambda kind: (type(kind), isinstance(kind("a"), tuple), kind.__module__, kind.__bases__),
    "more in it": lambda kind: hasattr(kind("a"), "__dict__"),
}


@pytest.mark.parametrize("question", ASKED)
def test_a_value_answers_as_the_librarys_own_does(question: str) -> None:
    ours, library = (ASKED[question](kind) for kind in BOTH)
    assert ours == library


@pytest.mark.parametrize(
    "mistake",
    [
        lambda kind: kind(),
        lambda kind: kind(number=1),
        lambda kind: kind("a", 1, (), "too many"),
        lambda kind: kind("a", name="twice"),
        lambda kind: kind("a", 1, (), number=2),
        lambda kind: kind("a", unknown=1),
        lambda kind: kind._make(["a"] * 4),
    ],
)
def test_what_does_not_fit_is_a_type_error_as_with_the_library(mistake: Callable[[Any], object]) -> None:
    for kind in BOTH:
        with pytest.raises(TypeError):
            mistake(kind)


@pytest.mark.parametrize("kind", BOTH)
def test_a_value_never_changes(kind: Any) -> None:
    value = kind("a")
    with pytest.raises(AttributeError):
        value.name = "b"
    with pytest.raises(AttributeError):
        value.other = 1
    with pytest.raises(ValueError, match="other"):
        value._replace(other=1)


def test_a_value_may_have_words_of_its_own_and_is_recognised_by_its_kind() -> None:
    match Ours("a", 21):
        case Ours(name, number=21) as value:
            assert (name, value.doubled, Ours.__doc__) == ("a", 42, "A place.")
        case _:
            pytest.fail("it was not recognised")


# The library, which makes values from there on, has words of its own.
OURS = sys.version_info < (3, 14)


def test_a_mistake_is_told_by_the_names_of_the_places() -> None:
    with pytest.raises(TypeError, match=r"^Ours takes name, number, more; wrong: name, other$" if OURS else "other"):
        Ours(other=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^Ours takes name, number, more; wrong: 4$" if OURS else "takes"):
        Ours("a", 1, (), 4)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match=r"^Ours has no other, another$"):
        Ours("a")._replace(other=1, another=2)  # type: ignore[call-arg]
