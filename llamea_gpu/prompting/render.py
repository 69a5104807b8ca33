"""Renders ``prompts/*.j2``: one template an operator, with partials for facts, parents, answers.

Deterministic: the same context gives the same text. Model-written text (sources, ideas, errors)
enters as values only, never as a template; sources stand in a fence longer than any inside them.

Not here: the choice of operator and parents, and sending the prompt.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

from llamea_gpu.programs import ALLOWED_MODULES, ALLOWED_PACKAGES
from llamea_gpu.prompting.context import OPERATORS, Operator, PromptContext
from llamea_gpu.prompting.feedback import weak_points
from llamea_gpu.prompting.filters import FILTERS
from llamea_gpu.resources import resource_dir

if TYPE_CHECKING:
    from jinja2 import Environment

# Spaces described in full and parameters listed for each; the others get one line.
DETAILED_SPACES = 4
LISTED_PARAMETERS = 12
LISTED_PROGRAMS = 40  # of all that were tried; what is left out is said
_PARENTS: dict[Operator, tuple[int, float]] = {
    "new": (0, math.inf),
    "refine": (1, 1),
    "explore": (1, math.inf),
    "crossover": (2, math.inf),
    "simplify": (1, 1),
    "diff-edit": (1, 1),
    "repair": (0, math.inf),
    "sequential": (0, 1),
}


def render(operator: Operator, context: PromptContext) -> tuple[str, str]:
    """The system message (the contract) and the user message (facts, parents, task, answer form).

    Args:
        operator: which template.
        context: what it is filled with.

    Raises:
        ValueError: an unknown operator, or a context that does not fit it.
    """
    _require_fitting(operator, context)
    templates = environment()
    variables = {
        "context": context,
        "detailed": DETAILED_SPACES,
        "listed": LISTED_PARAMETERS,
        "listed_programs": LISTED_PROGRAMS,
        "modules": ALLOWED_MODULES,
        "packages": ALLOWED_PACKAGES,
        "cpu_limit_s": context.cpu_limit_s,
    }
    system = templates.get_template("contract_whole.j2" if context.whole else "contract.j2").render(
        variables
    )
    user = templates.get_template(f"{operator}.j2").render(variables)
    return system.strip() + "\n", user.strip() + "\n"


def _require_fitting(operator: Operator, context: PromptContext) -> None:
    if operator not in OPERATORS:
        raise ValueError(f"operator must be one of {', '.join(OPERATORS)}, but got {operator!r}")
    least, most = _PARENTS[operator]
    if not least <= len(context.parents) <= most:
        raise ValueError(
            f"{operator!r} takes {least} to {most} parents, but got {len(context.parents)}"
        )
    if operator == "repair" and (not context.problem or context.failed_answer is None):
        raise ValueError("'repair' needs the problem and the failed answer: set both")


@functools.cache
def environment() -> Environment:
    """The templates, with every filter."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(  # plain text for a model, so nothing is to be escaped
        loader=FileSystemLoader(resource_dir("prompts")),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS, weak_points=weak_points)
    return environment
