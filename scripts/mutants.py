"""Small lies about a module: each mutant is the module with one thing in it changed.

What is changed: comparisons and their boundaries, `and` and `or`, `not`, conditions, constants, arithmetic, what is
returned, statements, defaults, keyword arguments, entries of tables, and cases of a match. Documentation and
annotations are left alone, since nothing can follow from them.
"""

import ast
import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

MARK = "XX"
# What no behaviour follows from, or what is changed with the node that holds it.
_SILENT = ("annotation", "returns", "decorator_list", "bases", "ctx", "op", "ops")

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_TWINS = {"min": "max", "max": "min", "all": "any", "any": "all", "startswith": "endswith", "endswith": "startswith"}
_TRIMS = ("strip", "lstrip", "lower", "upper", "removesuffix", "removeprefix", "capitalize")

Slot = tuple[ast.AST, str, int | None]


class Mutant(NamedTuple):
    """`inside` is the function or class that it is in, `function` the outermost function, empty for what runs when the
    module is loaded. `line` is where it stands today, `begins` where its statement does. The tree holds the change only
    until the next mutant is asked for."""

    module: str
    inside: str
    function: str
    line: int
    begins: int
    change: str
    tree: ast.Module

    @property
    def key(self) -> tuple[str, str, str]:
        return self.module, self.inside, self.change


class _Place(NamedTuple):
    slot: Slot
    inside: tuple[str, ...]
    function: str
    shown: Slot
    line: int
    begins: int


def mutants(module: str, source: str) -> Iterator[Mutant]:
    """All mutants of a module, in the order of the text."""
    tree = ast.parse(source)
    told: set[tuple[int, str, str]] = set()
    for place in list(_places(tree)):
        original, before = _get(place.slot), _text(_get(place.shown))
        for changed in _changes(place.slot, original):
            _put(place.slot, changed)
            change, inside = f"{before} → {_text(_get(place.shown))}", ".".join(place.inside)
            if (place.line, inside, change) not in told:
                told.add((place.line, inside, change))
                whole = ast.fix_missing_locations(tree)
                yield Mutant(module, inside, place.function, place.line, place.begins, change, whole)
            _put(place.slot, original)


def _places(tree: ast.Module) -> Iterator[_Place]:
    """Every node that may be changed, and what to show of it."""
    top = (tree, "body", None)
    return _below(tree, _Place(top, (), "", top, 0, 0))


def _below(node: ast.AST, above: _Place) -> Iterator[_Place]:
    for field, index, child in _children(node):
        slot = (node, field, index)
        line = getattr(child, "lineno", above.line)
        begins = line if isinstance(child, ast.stmt) else above.begins
        narrow = isinstance(child, ast.keyword) or (isinstance(child, ast.expr) and not _wide(child))
        shown = above.shown if narrow and isinstance(node, ast.expr | ast.keyword | ast.Slice) else slot
        place = _Place(slot, above.inside, above.function, shown, line, begins)
        yield place
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            inside = (*place.inside, child.name)
            runs = "" if isinstance(child, ast.ClassDef) else ".".join(inside)
            place = place._replace(inside=inside, function=place.function or runs)
        elif isinstance(child, ast.arguments):
            # Defaults belong to the function and are made when the module is loaded.
            place = place._replace(function="")
        yield from _below(child, place)


def _wide(node: ast.expr) -> bool:
    """Whether a piece of code says enough by itself to be shown."""
    return not isinstance(node, ast.Constant | ast.Name | ast.JoinedStr | ast.FormattedValue | ast.Slice | ast.UnaryOp)


def _children(node: ast.AST) -> Iterator[tuple[str, int | None, ast.AST]]:
    if isinstance(node, ast.MatchClass | ast.JoinedStr):
        # A text with values in it is changed as one.
        return
    for field, value in ast.iter_fields(node):
        if field in _SILENT:
            continue
        for index, item in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(item, ast.AST) and not (field == "body" and index == 0 and _is_text(item)):
                if isinstance(node, ast.Module) and isinstance(item, ast.Assign) and _is_type(item.value):
                    continue
                yield field, index, item


def _is_type(node: ast.expr) -> bool:
    """Whether it is the meaning of a name for a type, as far as core has such names."""
    return isinstance(node, ast.Subscript) and ast.unparse(node.value) in ("dict", "tuple", "Mapping", "Literal")


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _get(slot: Slot) -> Any:
    node, field, index = slot
    value = getattr(node, field)
    return value if index is None else value[index]


def _put(slot: Slot, value: Any) -> None:
    node, field, index = slot
    if index is None:
        setattr(node, field, value)
    else:
        getattr(node, field)[index] = value


def _text(node: ast.AST) -> str:
    """One line of code; of a compound statement its head."""
    if isinstance(node, ast.Pass):
        return "pass"
    if isinstance(node, ast.stmt) and hasattr(node, "body"):
        node = copy.copy(node)
        node.body = [ast.Pass()]
        if hasattr(node, "orelse"):
            node.orelse = []
    return " ".join(ast.unparse(node).split())


def _changes(slot: Slot, node: Any) -> Iterator[ast.AST]:
    """What could stand there instead."""
    parent, field, _ = slot
    if isinstance(parent, ast.Compare) and isinstance(node, ast.Constant) and node.value is None:
        return
    yield from _of_kind(node)
    if field == "test" or (isinstance(parent, ast.comprehension) and field == "ifs"):
        yield from _conditions(node)
    if isinstance(node, ast.stmt):
        yield from _statements(node)


def _conditions(node: ast.expr) -> Iterator[ast.AST]:
    yield ast.Constant(True)
    yield ast.Constant(False)
    if not isinstance(node, ast.Compare | ast.BoolOp | ast.UnaryOp):
        yield ast.UnaryOp(ast.Not(), node)


def _statements(node: ast.stmt) -> Iterator[ast.AST]:
    match node:
        case ast.Return(value=value):
            if value is not None and not (isinstance(value, ast.Constant) and value.value is None):
                yield ast.Return(ast.Constant(None))
        case ast.Expr() | ast.Raise() | ast.AugAssign() | ast.Continue() | ast.Break():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
            yield ast.Pass()


def _of_kind(node: Any) -> Iterator[ast.AST]:
    kind = _KINDS.get(type(node))
    return iter(kind(node)) if kind else iter(())


def _constant(node: ast.Constant) -> Iterator[ast.AST]:
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int | float):
        yield ast.Constant(value + 1)
        yield ast.Constant(value - 1)
    elif isinstance(value, str):
        yield ast.Constant(MARK + value)
    elif value is None:
        yield ast.Constant(MARK)


def _compare(node: ast.Compare) -> Iterator[ast.AST]:
    for place, operator in enumerate(node.ops):
        for other in _COMPARISONS[type(operator)]:
            yield ast.Compare(node.left, [*node.ops[:place], other(), *node.ops[place + 1 :]], node.comparators)


def _boolean(node: ast.BoolOp) -> Iterator[ast.AST]:
    yield ast.BoolOp(ast.And() if isinstance(node.op, ast.Or) else ast.Or(), node.values)
    for place in range(len(node.values)):
        rest = [value for number, value in enumerate(node.values) if number != place]
        yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)


def _unary(node: ast.UnaryOp) -> Iterator[ast.AST]:
    yield node.operand


def _binary(node: ast.BinOp) -> Iterator[ast.AST]:
    if type(node.op) in _ARITHMETIC:
        yield ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)


def _choice(node: ast.IfExp) -> Iterator[ast.AST]:
    # The other way round; always the one or the other is what its condition is changed to.
    yield ast.IfExp(node.test, node.orelse, node.body)


def _table(node: ast.Dict) -> Iterator[ast.AST]:
    for place in range(len(node.keys)):
        yield ast.Dict(_without(node.keys, place), _without(node.values, place))


def _row(node: ast.Tuple | ast.List | ast.Set) -> Iterator[ast.AST]:
    if isinstance(getattr(node, "ctx", None), ast.Store) or len(node.elts) < 2:
        return
    for place in range(len(node.elts)):
        changed = copy.copy(node)
        changed.elts = _without(node.elts, place)
        yield changed


def _call(node: ast.Call) -> Iterator[ast.AST]:
    for place in range(len(node.keywords)):
        yield ast.Call(node.func, node.args, _without(node.keywords, place))
    match node.func:
        case ast.Name(id=name) if name in _TWINS:
            yield ast.Call(ast.Name(_TWINS[name], ast.Load()), node.args, node.keywords)
        case ast.Name(id="sorted") | ast.Name(id="reversed"):
            yield node.args[0]
        case ast.Attribute(value=value, attr=name) if name in _TWINS:
            yield ast.Call(ast.Attribute(value, _TWINS[name], ast.Load()), node.args, node.keywords)
        case ast.Attribute(value=value, attr=name) if name in _TRIMS:
            yield value


def _text_of_parts(node: ast.JoinedStr) -> Iterator[ast.AST]:
    yield ast.JoinedStr([ast.Constant(MARK), *node.values])


def _slice(node: ast.Slice) -> Iterator[ast.AST]:
    if node.lower is not None:
        yield ast.Slice(None, node.upper, node.step)
    if node.upper is not None:
        yield ast.Slice(node.lower, None, node.step)


def _match(node: ast.Match) -> Iterator[ast.AST]:
    for place in range(len(node.cases)):
        if len(node.cases) > 1:
            yield ast.Match(node.subject, _without(node.cases, place))


def _without(items: Sequence[Any], place: int) -> list[Any]:
    return [item for number, item in enumerate(items) if number != place]


_KINDS: dict[type[ast.AST], Callable[[Any], Iterator[ast.AST]]] = {
    ast.Constant: _constant,
    ast.Compare: _compare,
    ast.BoolOp: _boolean,
    ast.UnaryOp: _unary,
    ast.BinOp: _binary,
    ast.IfExp: _choice,
    ast.Dict: _table,
    ast.Tuple: _row,
    ast.List: _row,
    ast.Set: _row,
    ast.Call: _call,
    ast.JoinedStr: _text_of_parts,
    ast.Slice: _slice,
    ast.Match: _match,
}
