"""Which class of a module is the optimizer, and what is wrong with its shape."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from llamea_gpu.programs.screening import Problem
from llamea_gpu.programs.syntax import methods_of

_Methods = Mapping[ast.ClassDef, ast.FunctionDef | None]


def find_optimizer(
    tree: ast.Module, class_name: str = ""
) -> tuple[ast.ClassDef | None, list[Problem]]:
    """The optimizer class, and what is wrong with its shape.

    It is the class whose ``__call__`` takes three arguments. Of several, those that the program
    itself refers to (as a base or a helper) are left aside. ``class_name`` leaves only that one.
    """
    methods = methods_of(tree, "__call__")
    defined = [node for node in methods if class_name in ("", node.name)]
    if not defined:
        names = ", ".join(dict.fromkeys(node.name for node in methods))
        listed = f"; classes in it: {names}" if names else ""
        what = f"no class {class_name}" if class_name else "no class"
        return None, [Problem("no-class", f"the program defines {what} at module level{listed}")]
    fitting = [c for c in defined if _takes_three(methods[c])]
    if not fitting:
        return None, [_no_call(defined, methods)]
    if len(fitting) > 1:
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        fitting = [c for c in fitting if c.name not in used] or fitting
    if len(fitting) > 1:
        names = ", ".join(c.name for c in fitting)
        clause = f"exactly one class may be an optimizer, but {names} all are: keep one"
        return None, [Problem("ambiguous-class", clause)]
    optimizer = fitting[0]
    constructor = methods_of(tree, "__init__")[optimizer]
    problems = [*_call_problems(methods[optimizer]), *_constructor_problems(constructor)]
    return optimizer, problems


def _no_call(defined: list[ast.ClassDef], methods: _Methods) -> Problem:
    called = next((c for c in defined if methods[c]), None)
    name = (called or defined[-1]).name
    got = "has another signature" if called else "is missing"
    clause = f"class {name} needs __call__(self, evaluate, space, rng), but its __call__ {got}"
    return Problem("signature", clause)


def _takes_three(method: ast.FunctionDef | None) -> bool:
    """Whether ``instance(evaluate, space, rng)`` binds to the method's parameters."""
    if method is None:
        return False
    positional = len(method.args.posonlyargs) + len(method.args.args) - 1
    required = positional - len(method.args.defaults)
    enough = positional >= 3 or method.args.vararg is not None
    return required <= 3 and enough and None not in method.args.kw_defaults


def _call_problems(method: ast.FunctionDef | None) -> Iterator[Problem]:
    pending: list[ast.AST] = list(method.body) if method else []
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            clause = f"line {node.lineno} makes __call__ a generator, which would never run"
            yield Problem("signature", clause)
        elif not isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            pending.extend(ast.iter_child_nodes(node))


def _constructor_problems(method: ast.FunctionDef | None) -> Iterator[Problem]:
    if method is None:
        return
    arguments = method.args
    if arguments.vararg or arguments.kwarg:
        clause = f"line {method.lineno}: __init__ must name every hyperparameter, without * or **"
        yield Problem("no-defaults", clause)
    if arguments.posonlyargs[1:]:
        names = ", ".join(argument.arg for argument in arguments.posonlyargs[1:])
        clause = (
            f"line {method.lineno}: hyperparameters are passed by name, but the / after {names}"
        )
        yield Problem("signature", f"{clause} in __init__ forbids that: leave it out")
    positional = [*arguments.posonlyargs, *arguments.args][1:]
    bare = positional[: max(0, len(positional) - len(arguments.defaults))]
    bare += [
        argument
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is None
    ]
    if bare:
        names = ", ".join(argument.arg for argument in bare)
        clause = f"line {method.lineno}: every parameter of __init__ needs a default, but {names} "
        yield Problem("no-defaults", clause + ("have none" if len(bare) > 1 else "has none"))
