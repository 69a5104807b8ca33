"""Evaluates constraint expressions and value lists of imported files without ever running them.

A T1 file states constraints as Python expressions ("32 <= block_size_x * block_size_y <= 1024")
and values as Python text ("[1, 2, 4]", "list(range(32, 257, 32))"). Both come from strangers: they
are parsed, every node is checked against a whitelist, and a small interpreter walks the tree.
Numbers are bounded, so that ``9**9**9`` is an error and not a frozen machine.

Covered: arithmetic, comparisons, ``and or not``, ``in``, ``a if b else c``, parameter names,
numbers, strings, bools, None, tuples and lists, and calls of abs, min, max, round, int, float.
Not covered: everything else, attribute access, subscripts, comprehensions and lambdas among it.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from llamea_gpu.errors import SpaceError
from llamea_gpu.spaces.parameters import Value
from llamea_gpu.spaces.quoting import quoted

# Characters; the longest public constraint has about 150. Python 3.10's own parser overflows the
# C stack on chains of 100,000 operators, so longer texts are parsed only if they are flat lists.
MAX_EXPRESSION = 2_000
MAX_VALUES = 100_000  # values of one parameter
_ITEM = r"(?:-?\w+(?:\.\w*)?(?:e-\d+)?|'[^'\\\n]*'|\"[^\"\\\n]*\")"
_FLAT_LIST = re.compile(rf"\s*\[\s*{_ITEM}(?:\s*,\s*{_ITEM})*\s*(?:,\s*)?\]\s*")
_MAX_BITS = 512
_MAX_DEPTH = 50

_Evaluate = Callable[[Mapping[str, Value]], Any]

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "min": min,
    "max": max,
    # Without round's second argument: round(1, -10**9) would compute 10**10**9.
    "round": lambda number: round(number),
    "int": int,
    "float": float,
}


class ExpressionError(SpaceError):
    """An expression that is not allowed, or that failed for some configuration."""


@dataclass(frozen=True)
class Constraint:
    """A parsed constraint.

    Attributes:
        expression: its text.
        parameters: the parameters it mentions, in the order of the space.
    """

    expression: str
    parameters: tuple[str, ...]
    _evaluate: _Evaluate

    def holds(self, configuration: Mapping[str, Value]) -> bool:
        """Whether the configuration satisfies it.

        A division by zero counts as satisfied, as it does in Kernel Tuner.

        Raises:
            ExpressionError: the operands do not fit the operators, or a number grew too large.
        """
        try:
            return bool(self._evaluate(configuration))
        except ZeroDivisionError:
            return True
        except (TypeError, ValueError, OverflowError) as error:
            raise ExpressionError(
                f"the constraint {quoted(self.expression)} must be computable for every "
                f"configuration, but got: {error}"
            ) from error


def parse_constraint(expression: str, names: Sequence[str]) -> Constraint:
    """Check an expression over the parameters ``names``.

    Raises:
        ExpressionError: a syntax error, or anything outside the whitelist.
    """
    if len(expression) > MAX_EXPRESSION:
        raise ExpressionError(
            f"a constraint must have at most {MAX_EXPRESSION} characters, but "
            f"{expression[:80]!r}… has {len(expression)}"
        )
    tree = _parse(expression)
    evaluate = _Compiler(frozenset(names), expression).compile(tree, 0)
    mentioned = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return Constraint(expression, tuple(n for n in names if n in mentioned), evaluate)


def parse_values(text: str) -> tuple[Value, ...]:
    """The values that a T1 file's text stands for: literals, ``range``, ``list``, ``tuple``, ``+``.

    Raises:
        ExpressionError: anything else, no value, or more than 100,000.
    """
    if len(text) > MAX_EXPRESSION and not _FLAT_LIST.fullmatch(text):
        raise _not_values(text)
    if text.count(",") > MAX_VALUES:
        raise ExpressionError(f"a parameter must have at most {MAX_VALUES} values: {text[:80]!r}")
    try:
        values = _list_values(_parse(text), text)
    except RecursionError:
        raise _not_values(text) from None
    if not 0 < len(values) <= MAX_VALUES:
        raise ExpressionError(
            f"a parameter must have 1 to {MAX_VALUES} values, but {text[:80]!r} has {len(values)}"
        )
    return values


def _parse(text: str) -> ast.expr:
    """Parse text that is short, or flat: see MAX_EXPRESSION."""
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError(
            f"{text[:80]!r} must be one Python expression, but it is not: {str(error)[:200]}"
        ) from error


class _Compiler:
    """Turns a syntax tree into nested closures, node by whitelisted node."""

    def __init__(self, names: frozenset[str], expression: str) -> None:
        self._names = names
        self._expression = expression

    def compile(self, node: ast.expr, depth: int) -> _Evaluate:
        if depth > _MAX_DEPTH:
            raise self._refuse("nests too deeply")
        parts = partial(self._parts, depth + 1)
        match node:
            case ast.Name(id=name) if name in self._names:
                return lambda configuration: configuration[name]
            case ast.Name():
                raise self._refuse(
                    f"mentions {quoted(node.id)}, which is no parameter of the space"
                )
            case ast.Constant(value=int() | float() | str() | bool() | None as value):
                return lambda _: value
            case ast.BoolOp():
                return _junction(isinstance(node.op, ast.And), parts(*node.values))
            case ast.BinOp() if type(node.op) in _BINARY:
                return _arithmetic(type(node.op), *parts(node.left, node.right))
            case ast.UnaryOp() if type(node.op) in _UNARY:
                operate, (operand,) = _UNARY[type(node.op)], parts(node.operand)
                return lambda configuration: operate(operand(configuration))
            case ast.Compare():
                operators = [_COMPARE[type(op)] for op in node.ops]
                return _comparison(operators, parts(node.left, *node.comparators))
            case ast.IfExp():
                test, body, otherwise = parts(node.test, node.body, node.orelse)
                return lambda c: body(c) if test(c) else otherwise(c)
            case ast.Call(func=ast.Name(id=name), keywords=[]) if name in _FUNCTIONS:
                function, arguments = _FUNCTIONS[name], parts(*node.args)
                return lambda c: function(*[argument(c) for argument in arguments])
            case ast.Tuple() | ast.List():
                elements = parts(*node.elts)
                return lambda c: tuple([element(c) for element in elements])
        raise self._refuse(f"uses {self._shown(node)}, which is not allowed")

    def _parts(self, depth: int, *children: ast.expr) -> list[_Evaluate]:
        return [self.compile(child, depth) for child in children]

    def _shown(self, node: ast.expr) -> str:
        # Not ast.unparse: it would recurse into whatever depth the file chose.
        text = ast.get_source_segment(self._expression.strip(), node) or type(node).__name__
        return repr(text[:60])

    def _refuse(self, why: str) -> ExpressionError:
        return ExpressionError(
            f"a constraint may hold arithmetic, comparisons, and/or/not, parameters and "
            f"{'/'.join(_FUNCTIONS)}, but {quoted(self._expression)} {why}"
        )


def _junction(every: bool, parts: Sequence[_Evaluate]) -> _Evaluate:
    def evaluate(configuration: Mapping[str, Value]) -> Any:
        value: Any = every
        for part in parts:
            value = part(configuration)
            if bool(value) != every:
                break
        return value

    return evaluate


def _arithmetic(kind: type[ast.operator], left: _Evaluate, right: _Evaluate) -> _Evaluate:
    operate = _BINARY[kind]
    growing = kind in (ast.Pow, ast.LShift)

    def evaluate(configuration: Mapping[str, Value]) -> Any:
        a, b = left(configuration), right(configuration)
        if not isinstance(a, int | float) or not isinstance(b, int | float):
            raise TypeError(f"arithmetic needs numbers, but got {quoted(a)} and {quoted(b)}")
        if growing and abs(b) > _MAX_BITS:
            raise OverflowError(f"an exponent of {quoted(b)} is too large")
        result = operate(a, b)
        if isinstance(result, int) and result.bit_length() > _MAX_BITS:
            raise OverflowError(f"a number grew beyond {_MAX_BITS} bits")
        if isinstance(result, complex):
            raise ValueError(f"{quoted(a)} ** {quoted(b)} is not a real number")
        return result

    return evaluate


def _comparison(
    operators: Sequence[Callable[[Any, Any], bool]], parts: Sequence[_Evaluate]
) -> _Evaluate:
    def evaluate(configuration: Mapping[str, Value]) -> bool:
        left = parts[0](configuration)
        for compare, part in zip(operators, parts[1:], strict=True):
            right = part(configuration)
            if not compare(left, right):
                return False
            left = right
        return True

    return evaluate


def _list_values(node: ast.expr, text: str) -> tuple[Value, ...]:
    if isinstance(node, ast.List | ast.Tuple):
        return tuple(_literal(element, text) for element in node.elts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _list_values(node.left, text) + _list_values(node.right, text)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        if node.func.id in ("list", "tuple") and len(node.args) == 1:
            return _list_values(node.args[0], text)
        if node.func.id == "range" and 1 <= len(node.args) <= 3:
            return _range_values([_literal(argument, text) for argument in node.args], text)
    raise _not_values(text)


def _range_values(bounds: Sequence[Value], text: str) -> tuple[Value, ...]:
    if not all(type(bound) is int for bound in bounds) or 0 in bounds[2:]:
        raise _not_values(text)
    numbers = range(*[int(str(bound)) for bound in bounds])
    # len() itself overflows for ranges beyond sys.maxsize; a slice of a range is still a range.
    if len(numbers[: MAX_VALUES + 1]) > MAX_VALUES:
        raise ExpressionError(f"a parameter must have at most {MAX_VALUES} values: {text[:80]!r}")
    return tuple(numbers)


def _literal(node: ast.expr, text: str) -> Value:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise _not_values(text) from None
    if not isinstance(value, int | float | str | bool | None):
        raise _not_values(text)
    return value


def _not_values(text: str) -> ExpressionError:
    return ExpressionError(
        f"values must be a list of numbers, strings, bools or None, or list(range(...)), but got "
        f"{text[:80]!r}: write the list out"
    )
