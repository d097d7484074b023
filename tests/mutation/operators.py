"""Small mistakes that somebody might make in a source file: one replaced stretch of bytes each.

Left alone: docstrings, annotations, decorators and what `raise` says; and strings, which are names and messages. Plain
assignments are not deleted, since the next line would not find the name, and say so by itself.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift,
}  # fmt: skip
_NEGATED = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Mutant:
    """One mistake."""

    module: str  # path from the root of the tree
    function: int  # first line of the outermost function it lies in; 0: in none
    body: bool  # within that function's code, not among its defaults
    line: int
    operator: str
    start: int  # in bytes, as the end
    end: int
    before: str
    after: str

    @property
    def key(self) -> str:
        return f"{self.module}:{self.line}:{self.start}:{self.before} -> {self.after}"

    def applied(self, source: bytes) -> bytes:
        """The source with the mistake in it."""
        return source[: self.start] + self.after.encode() + source[self.end :]


def mutants(module: str, source: bytes) -> list[Mutant]:
    """Every mistake that the operators know in a module, in the order of its lines."""
    offsets = [0]
    for line in source.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    found = []
    for node, function, body in _nodes(ast.parse(source), 0, False):
        for operator, after in changes(node):
            at = node.test if operator == "condition" else node  # of the statement only that
            start = offsets[at.lineno - 1] + at.col_offset
            end = offsets[at.end_lineno - 1] + at.end_col_offset
            before = source[start:end].decode()
            found.append(Mutant(module, function, body, at.lineno, operator, start, end, before, after))
    return sorted(found, key=lambda one: (one.start, one.end, one.after))


def _nodes(node: ast.AST, function: int, body: bool) -> Iterator[tuple[ast.expr | ast.stmt, int, bool]]:
    """The nodes that may be changed, each with the outermost function it lies in, and whether in its body."""
    if isinstance(node, ast.expr | ast.stmt):
        yield node, function, body
    if isinstance(node, ast.Raise | ast.JoinedStr):
        return
    outermost = isinstance(node, _FUNCTIONS) and not function
    if outermost:
        function = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _nodes(child, function, body or (outermost and name == "body"))


def changes(node: ast.expr | ast.stmt) -> Iterator[tuple[str, str]]:
    """What may stand in the place of a node: the operator's name, and the text."""
    for operator, kinds, change in OPERATORS:
        if isinstance(node, kinds):
            yield from ((operator, after) for after in change(node))


def _text(node: ast.expr | ast.stmt, **fields: object) -> str:
    """A node with other fields, as text, in brackets where it is an expression."""
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return f"({ast.unparse(other)})" if isinstance(node, ast.expr) else ast.unparse(other)


def _comparison(node: ast.Compare) -> Iterator[str]:
    for i, op in enumerate(node.ops):
        yield _text(node, ops=[*node.ops[:i], _COMPARISONS[type(op)](), *node.ops[i + 1 :]])


def _arithmetic(node: ast.BinOp | ast.AugAssign) -> Iterator[str]:
    if type(node.op) in _ARITHMETIC:
        yield _text(node, op=_ARITHMETIC[type(node.op)]())


def _sign(node: ast.UnaryOp) -> Iterator[str]:
    if isinstance(node.op, ast.USub | ast.Not | ast.Invert):
        yield f"({ast.unparse(node.operand)})"


def _constant(node: ast.Constant) -> Iterator[str]:
    value = node.value
    if isinstance(value, bool):
        yield repr(not value)
    elif isinstance(value, int):
        yield from (f"({value + 1})", f"({value - 1})")
    elif isinstance(value, float):
        yield from (f"({value * 2})", f"({value / 2})") if value else ("(1.0)",)


def _boolean(node: ast.BoolOp) -> Iterator[str]:
    yield _text(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())


def _condition(node: ast.If | ast.IfExp | ast.While) -> Iterator[str]:
    test = node.test
    negated = isinstance(test, ast.Compare) and isinstance(test.ops[0], _NEGATED)  # by the operator of comparisons
    negated |= isinstance(test, ast.UnaryOp)  # by that of signs
    if not negated and ast.unparse(test) != "TYPE_CHECKING":
        yield f"(not ({ast.unparse(test)}))"


def _arguments(node: ast.Call) -> Iterator[str]:
    if ast.unparse(node.func) in ("max", "min"):  # to which the order is nothing
        return
    plain = [not isinstance(argument, ast.Starred) for argument in node.args]
    for i in range(len(plain) - 1):
        if plain[i] and plain[i + 1] and ast.dump(node.args[i]) != ast.dump(node.args[i + 1]):
            swapped = [*node.args[:i], node.args[i + 1], node.args[i], *node.args[i + 2 :]]
            yield _text(node, args=swapped)


def _statement(node: ast.stmt) -> Iterator[str]:
    target = node.targets[0] if isinstance(node, ast.Assign) else None
    called = isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
    if called or isinstance(node, ast.AugAssign | ast.Raise) or isinstance(target, ast.Attribute | ast.Subscript):
        yield "pass"
    if isinstance(node, ast.Break | ast.Continue):
        yield "continue" if isinstance(node, ast.Break) else "break"


OPERATORS: tuple[tuple[str, tuple[type[ast.AST], ...], Callable[..., Iterator[str]]], ...] = (
    ("comparison", (ast.Compare,), _comparison),
    ("arithmetic", (ast.BinOp, ast.AugAssign), _arithmetic),
    ("sign", (ast.UnaryOp,), _sign),
    ("constant", (ast.Constant,), _constant),
    ("boolean", (ast.BoolOp,), _boolean),
    ("condition", (ast.If, ast.IfExp, ast.While), _condition),
    ("arguments", (ast.Call,), _arguments),
    ("statement", (ast.stmt,), _statement),
)
