"""Options made of a settings class: names, types, bounds, defaults and help stand there alone."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Literal

import typer
from pydantic.fields import FieldInfo

# Short: Typer's own leave too little of 80 columns to names and help.
_METAVARS = {int: "<int>", float: "<float>"}


def options_of(
    settings: Any, *, leave: Collection[str] = (), names: Mapping[str, str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the fields of ``settings`` (pydantic's) as options, in the place of ``given``.

    ``given`` is then what was typed, by field; a field that is a tuple is an option to repeat.
    ``leave`` are fields that get none, ``names`` options that are not called as their field.
    """
    fields = getattr(settings, "model_fields", None) or settings.__pydantic_fields__
    options = [
        _option(name, field, (names or {}).get(name, ""))
        for name, field in fields.items()
        if name not in leave
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.name != "given"]

        @functools.wraps(command)
        def run(**typed: Any) -> None:
            values = {option.name: typed.pop(option.name) for option in options}
            command(**typed, given={k: v for k, v in values.items() if v is not None and v != []})

        keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
        run.__signature__ = signature.replace(parameters=[*keyword, *options])  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in (*keyword, *options)}
        return run

    return decorate


def _option(name: str, field: FieldInfo, flag: str) -> inspect.Parameter:
    kind: Any = field.annotation
    if isinstance(kind, types.UnionType):
        kind = next(part for part in typing.get_args(kind) if part is not type(None))
    repeated = typing.get_origin(kind) is tuple
    if repeated:
        kind = list[typing.get_args(kind)[0]]  # type: ignore[misc]
    least, most = (
        next((getattr(bound, key) for bound in field.metadata if hasattr(bound, key)), None)
        for key in ("ge", "le")
    )
    default = field.get_default(call_default_factory=True)
    shown = ", ".join(map(str, default)) if isinstance(default, tuple) else default
    choices = typing.get_args(kind) if typing.get_origin(kind) is Literal else ()
    notes = (
        field.description,
        f"One of {', '.join(choices)}." if choices else "",
        "Repeatable." if repeated else "",
        f"Default: {shown}." if shown not in (None, "", False) else "",
    )
    flag = flag or f"--{name.replace('_', '-')}"
    if kind is bool and default is not False:
        flag += f"/--no-{flag.removeprefix('--')}"
    option = typer.Option(
        flag,
        help=" ".join(filter(None, notes)),
        min=least,
        max=most,
        metavar="<choice>" if choices else _METAVARS.get(kind),
        # In a table of their own: the column of the second names would leave the rest no room.
        rich_help_panel="Options to switch on or off" if "/" in flag else None,
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )
