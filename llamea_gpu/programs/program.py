"""An optimizer's program: source text with what was read from it, statically.

Not here: reading one (`reading`), making instances (`instances`), running one (the sandbox).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from llamea_gpu.errors import SearcherError

Hyperparameter = float | int | bool | str


@dataclass(frozen=True, slots=True)
class Program:
    """One optimizer under the contract. Its source has not been executed to make this.

    Attributes:
        source: Python text.
        class_name: the optimizer class in it.
        hyperparameters: (name, value) of each ``__init__`` parameter whose default is a finite
            number, a bool or a string literal, in order; the value is the default unless it was
            set since.
        idea: one line, at most 200 characters.
        digest: SHA-256 (hex) of the normalised syntax tree; equal for trivial rewrites.
    """

    source: str
    class_name: str
    hyperparameters: tuple[tuple[str, Hyperparameter], ...]
    idea: str
    digest: str

    @classmethod
    def unread(cls, source: str, class_name: str, **settings: Hyperparameter) -> Program:
        """A program of the sandbox's own, which nobody has read: it may be anything."""
        return cls(source, class_name, tuple(settings.items()), idea="", digest="")

    @property
    def settings(self) -> dict[str, Hyperparameter]:
        """The hyperparameters by name, in order."""
        return dict(self.hyperparameters)

    def with_settings(self, **changes: Hyperparameter) -> Program:
        """The same program with other hyperparameters; an integer serves as a float.

        Raises:
            SearcherError: one does not exist, or has another type than its default.
        """
        settings = self.settings
        for key, value in changes.items():
            settings[key] = self._checked(key, value)
        return replace(self, hyperparameters=tuple(settings.items()))

    def _checked(self, key: str, value: Hyperparameter) -> Hyperparameter:
        settings = self.settings
        if key not in settings:
            raise SearcherError(
                f"{self.class_name}: a hyperparameter must be one of "
                f"({', '.join(settings) or 'there are none'}), but got {key!r}"
            )
        default_type = type(settings[key])
        if type(value) is default_type or (default_type is float and type(value) is int):
            return default_type(value)
        raise SearcherError(
            f"{self.class_name}: {key} must be of type {default_type.__name__} like its default "
            f"{settings[key]}, but got {value!r}"
        )
