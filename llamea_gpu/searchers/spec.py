"""What the text of a spec consists of: ``[SCHEME:]TARGET[?key=value&key=value]``.

It knows the grammar alone: `llamea_gpu.searchers.registry` knows what a target means.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from llamea_gpu.searchers.library import Setting

# Each module has ``resolve(spec, name, query)``, which returns a searcher; where its targets are
# fixed names ``names()``, and where they have settings ``options(name)``.
SCHEMES = {
    "kernel_tuner": "llamea_gpu.searchers.kernel_tuner",
    "optalg": "llamea_gpu.searchers.optalg",
    "helion": "llamea_gpu.searchers.helion",
    "scipy": "llamea_gpu.searchers.scipy_optimize",
    "optuna": "llamea_gpu.searchers.optuna_samplers",
    "llm": "llamea_gpu.searchers.llm",
    "hybrid": "llamea_gpu.searchers.hybrid",
}


@dataclass(frozen=True, slots=True)
class Spec:
    """A spec in parts; ``str`` puts them together again.

    ``scheme`` is empty for a program: a name that ships, or a file. ``target`` is what stands
    before the settings; ``settings`` are ``key=value`` each, as written. The second part of a
    ``hybrid:`` is in its settings.
    """

    scheme: str
    target: str
    settings: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Spec:
        """The parts of ``text``: any text has them."""
        target, _, query = text.partition("?")
        scheme, colon, rest = target.partition(":")
        settings = tuple(filter(None, query.split("&")))
        if colon and scheme in SCHEMES:
            return cls(scheme, rest, settings)
        return cls("", target, settings)

    def __str__(self) -> str:
        scheme = f"{self.scheme}:" if self.scheme else ""
        return f"{scheme}{self.target}{'?' if self.settings else ''}{self.query}"

    @property
    def query(self) -> str:
        """The settings as they stand behind the question mark."""
        return "&".join(self.settings)

    @property
    def file(self) -> tuple[Path, str] | None:
        """The file that is meant and the class in it ("" when none is named); None for a name."""
        stem, colon, class_name = self.target.partition(".py:")
        if not (colon or self.target.endswith(".py")):
            return None
        return Path(f"{stem}.py" if colon else self.target), class_name

    @property
    def name(self) -> str:
        """A short name: the target, a file's without folder and suffix."""
        return self.file[0].stem if self.file else self.target

    def without_folder(self) -> Spec:
        """The same where the file lies in the working directory: what may be shown to others."""
        if self.scheme or self.file is None:
            return self
        return replace(self, target=self.target.rpartition("/")[2])

    def value(self, key: str) -> str | None:
        """The text that ``key`` is set to, the last time; None when it is not."""
        values = [item.partition("=")[2] for item in self.settings if item.partition("=")[0] == key]
        return values[-1] if values else None

    def without(self, key: str) -> Spec:
        """The same with ``key`` left unset."""
        kept = tuple(item for item in self.settings if item.partition("=")[0] != key)
        return replace(self, settings=kept)

    def with_settings(self, settings: Mapping[str, Setting]) -> Spec:
        """The same with more settings, which win over its own."""
        more = tuple(
            f"{key}={value if isinstance(value, str) else json.dumps(value)}"
            for key, value in settings.items()
        )
        return replace(self, settings=(*self.settings, *more))
