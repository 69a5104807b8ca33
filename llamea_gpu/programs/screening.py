"""Checks of a whole program against the contract's rules, by its syntax tree.

They find clear errors before anything is paid for: forbidden imports and calls, work at import,
names that nothing defines, a handler that swallows the end of the budget, threads, generators
without a seed. They are no security boundary: the sandbox is.

Not here: which class is the optimizer and what its methods look like (`reading`).
"""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llamea_gpu.errors import SearcherError
from llamea_gpu.programs.normalise import module_names
from llamea_gpu.programs.program import Program

# Pure modules only: no clocks, no files, no processes, no threads, no introspection.
ALLOWED_MODULES: tuple[str, ...] = (
    "__future__",
    "abc",
    "array",
    "bisect",
    "cmath",
    "collections",
    "copy",
    "dataclasses",
    "decimal",
    "enum",
    "fractions",
    "functools",
    "heapq",
    "itertools",
    "math",
    "numbers",
    "operator",
    "random",
    "re",
    "statistics",
    "string",
    "typing",
    "warnings",
)
ALLOWED_PACKAGES: tuple[str, ...] = ("numpy", "scipy", "sklearn")
# Parts of these packages that read files, start processes or download.
_FORBIDDEN_PARTS = frozenset(
    {
        "numpy.ctypeslib",
        "numpy.distutils",
        "numpy.f2py",
        "numpy.testing",
        "scipy.datasets",
        "scipy.io",
        "sklearn.datasets",
    }
)
# Parts that are deprecated or meant for developers, which the sandbox does not load.
_ABSENT_PARTS = frozenset(
    {
        "numpy.core",
        "numpy.lib.user_array",
        "numpy.linalg.lapack_lite",
        "numpy.compat",
        "numpy.ma.testutils",
        "numpy.ma.timer_comparison",
        "numpy.matlib",
        "numpy.typing.mypy_plugin",
        "scipy.interpolate.dfitpack",
        "scipy.misc",
        "scipy.optimize.cython_optimize",
        "scipy.sparse.spfuncs",
        "sklearn.externals",
        "sklearn.utils.estimator_checks",
    }
)
_FORBIDDEN_NAMES = frozenset(
    {
        *("__builtins__", "__import__", "__loader__", "__spec__", "breakpoint", "compile", "eval"),
        *("exec", "exit", "globals", "input", "open", "quit"),
    }
)
_FORBIDDEN_ATTRIBUTES = frozenset(
    {"__builtins__", "__closure__", "__code__", "__globals__", "__loader__", "__subclasses__"}
)
_REMEDIES = {
    "time": "the sandbox limits CPU time; use evaluate.spent for progress",
    "datetime": "the sandbox limits CPU time; use evaluate.spent for progress",
    "sys": "use math.inf for a largest number",
    "threading": "evaluate a batch to work in parallel",
    "multiprocessing": "evaluate a batch to work in parallel",
    "concurrent": "evaluate a batch to work in parallel",
    "joblib": "evaluate a batch to work in parallel",
}
_UNSEEDED = frozenset({"default_rng", "RandomState", "Random", "SystemRandom"})
# Not n_jobs: scikit-learn works one job after another where it cannot start threads.
_THREAD_OPTIONS = frozenset({"workers"})
_SWALLOWING = frozenset({"BaseException", "BudgetExhausted", "GeneratorExit"})
_MODULE_NAMES = frozenset({"__name__", "__doc__"})
Nodes = Sequence[ast.AST]  # of a whole module


@dataclass(frozen=True, slots=True)
class Problem:
    """One broken rule: a stable kind, and a clause (no full stop) that names line and remedy."""

    kind: str
    clause: str


def screen(tree: ast.Module, source: str) -> Iterator[Problem]:
    """Every rule that ``source`` breaks, grouped by rule. ``tree`` is its parsed form."""
    nodes = tuple(ast.walk(tree))  # once: walking takes most of the time
    yield from _imports(nodes)
    yield from _names(nodes)
    yield from _module_level(tree, nodes)
    yield from _undefined(tree, nodes, source)
    yield from _handlers(nodes)
    yield from _calls(nodes)


def require_contract(program: Program) -> None:
    """Refuse a program that was not admitted and breaks a rule.

    Raises:
        SearcherError: with the first broken rule.
    """
    problem = next(screen(ast.parse(program.source), program.source), None)
    if problem is not None:
        raise SearcherError(
            f"{program.class_name} must keep the rules of the optimizer contract, but "
            f"{problem.clause}"
        )


def _imports(nodes: Nodes) -> Iterator[Problem]:
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _import(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield Problem("forbidden-import", f"line {node.lineno} has a relative import")
                continue
            for alias in node.names:
                if alias.name == "*":
                    clause = f"line {node.lineno} imports *: name what is used"
                    yield Problem("forbidden-import", clause)
                else:
                    yield from _import(f"{node.module}.{alias.name}", node.lineno)


def _import(dotted: str, line: int) -> Iterator[Problem]:
    """``dotted`` is a module, or a module and a name in it."""
    root, _, rest = dotted.partition(".")
    if root not in ALLOWED_MODULES and root not in ALLOWED_PACKAGES:
        remedy = _REMEDIES.get(
            root, "only pure standard-library modules, numpy, scipy, sklearn are"
        )
        yield Problem(
            "forbidden-import", f"line {line} imports {root!r}, which is not allowed: {remedy}"
        )
    elif _is_within(dotted, _ABSENT_PARTS):
        clause = f"line {line} imports {dotted!r}, which is deprecated or for developers of {root}"
        yield Problem("forbidden-import", f"{clause}: use its public modules")
    elif _is_within(dotted, _FORBIDDEN_PARTS) or any(
        part.startswith("_") for part in rest.split(".")
    ):
        yield Problem("forbidden-import", f"line {line} imports {dotted!r}, which is not allowed")


def _is_within(dotted: str, parts: frozenset[str]) -> bool:
    return any(f"{dotted}.".startswith(f"{part}.") for part in parts)


def _names(nodes: Nodes) -> Iterator[Problem]:
    own = {
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    own |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    for node in nodes:
        if isinstance(node, ast.Name) and node.id in _FORBIDDEN_NAMES - own:
            yield Problem(
                "forbidden-call", f"line {node.lineno} uses {node.id!r}, which is not allowed"
            )
        elif isinstance(node, ast.Attribute) and node.attr in _FORBIDDEN_ATTRIBUTES:
            clause = f"line {node.lineno} uses {node.attr!r}, which is not allowed"
            yield Problem("forbidden-call", clause)


def _module_level(tree: ast.Module, nodes: Nodes) -> Iterator[Problem]:
    """The module itself may import, define and name constants; it runs none of its own code.

    Constants may be computed by builtins and imported functions; ``try`` around an import and
    settings such as ``warnings.simplefilter("ignore")`` are let pass.
    """
    own = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    imported = {
        (alias.asname or alias.name).split(".")[0]
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    pending: list[ast.stmt] = list(reversed(tree.body))
    while pending:
        statement = pending.pop()
        if isinstance(statement, ast.Try):
            handlers = [inner for handler in statement.handlers for inner in handler.body]
            inside = [*statement.body, *handlers, *statement.orelse, *statement.finalbody]
            pending.extend(reversed(inside))
        elif not _is_passive(statement, own, imported):
            yield Problem(
                "top-level",
                f"line {statement.lineno} does work at module level, where only imports, "
                f"constants, functions and classes may stand",
            )


def _is_passive(statement: ast.stmt, own: set[str], imported: set[str]) -> bool:
    passive = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    if isinstance(statement, passive | ast.Pass):
        return True
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        value = statement.value
        return value is None or not (_called_roots(value) & own)
    if isinstance(statement, ast.Expr):
        is_text = isinstance(statement.value, ast.Constant)
        return is_text or (
            isinstance(statement.value, ast.Call) and _called_roots(statement.value) <= imported
        )
    return False


def _called_roots(expression: ast.expr) -> set[str]:
    """The names at the root of everything ``expression`` calls (``np`` for ``np.dot()``)."""
    roots = set()
    for node in ast.walk(expression):
        if isinstance(node, ast.Call):
            function: ast.expr = node.func
            while isinstance(function, ast.Attribute | ast.Call | ast.Subscript):
                function = function.func if isinstance(function, ast.Call) else function.value
            roots.add(function.id if isinstance(function, ast.Name) else "")
    return roots


def _undefined(tree: ast.Module, nodes: Nodes, source: str) -> Iterator[Problem]:
    """Names that no scope binds: a missing import, most of the time."""
    known = module_names(tree, nodes) | set(dir(builtins)) | _MODULE_NAMES | _FORBIDDEN_NAMES
    missing: set[str] = set()
    pending = [symtable.symtable(source, "<optimizer>", "exec")]
    while pending:
        table = pending.pop()
        pending.extend(table.get_children())
        # Not get_symbols, which compares each name with each inner scope.
        flags: dict[str, int] = table._table.symbols  # type: ignore[attr-defined]
        symbols = (symtable.Symbol(name, flags[name]) for name in flags.keys() - known)
        missing |= {
            symbol.get_name() for symbol in symbols if symbol.is_referenced() and symbol.is_global()
        }
    annotations = _lazy_annotations(tree, nodes)
    for node in nodes:
        if isinstance(node, ast.Name) and node.id in missing and node not in annotations:
            missing.discard(node.id)
            clause = f"line {node.lineno} uses {node.id!r}, which is never defined or imported"
            yield Problem("undefined-name", clause)


def _lazy_annotations(tree: ast.Module, nodes: Nodes) -> set[ast.AST]:
    """Nodes of annotations that are never evaluated (``from __future__ import annotations``)."""
    if not any(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in tree.body):
        return set()
    roots = [
        annotation
        for node in nodes
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if annotation is not None
    ]
    return {inner for root in roots for inner in ast.walk(root)}


def _handlers(nodes: Nodes) -> Iterator[Problem]:
    """A handler that catches BudgetExhausted without raising again would run past the budget."""
    for node in nodes:
        if not isinstance(node, ast.ExceptHandler):
            continue
        caught = (
            {n.id for n in ast.walk(node.type) if isinstance(n, ast.Name)} if node.type else None
        )
        reraises = any(
            isinstance(n, ast.Raise) for statement in node.body for n in ast.walk(statement)
        )
        if (caught is None or caught & _SWALLOWING) and not reraises:
            fault = (
                "has a bare 'except:'" if caught is None else f"catches {min(caught & _SWALLOWING)}"
            )
            yield Problem(
                "swallows-budget",
                f"line {node.lineno} {fault}, which swallows the end of the budget: "
                f"catch 'Exception' or something narrower",
            )


def _calls(nodes: Nodes) -> Iterator[Problem]:
    own = {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in _UNSEEDED - own and _without_seed(node):
            clause = f"line {node.lineno} calls {name}() without a seed: draw from the rng argument"
            yield Problem("unseeded", clause)
        for keyword in node.keywords:
            if keyword.arg in _THREAD_OPTIONS and _number(keyword.value) not in (None, 1):
                clause = f"line {node.lineno} sets {keyword.arg}, but threads and processes raise"
                yield Problem("threads", f"{clause}: leave it out")


def _without_seed(call: ast.Call) -> bool:
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    return all(isinstance(node, ast.Constant) and node.value is None for node in arguments)


def _number(node: ast.expr) -> object:
    """The value of a literal number, else None."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(node.operand)
        return -inner if isinstance(inner, int | float) else None
    return node.value if isinstance(node, ast.Constant) else None
