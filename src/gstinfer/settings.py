"""One declaration of a setting serves the GObject property, the command line and the documentation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gstinfer.errors import ConfigError, UnknownNameError

__all__ = ["Option", "Settings", "option"]

_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}


class Option:
    """One setting of a class: a descriptor that stores the value on the instance.

    Attributes:
        name: Attribute name; ``key`` is its hyphenated public form.
        type: bool, int, float or str.
        default: Value when unset. For int and float with ``unset`` the default is None and the property shows ``unset``.
        help: One sentence for people.
        minimum: Least value allowed, or None.
        maximum: Greatest value allowed, or None.
        choices: Allowed strings, or None.
        unset: Number that stands for None where a property needs a number.
        mutable: True where a change while playing takes effect.
    """

    def __init__(
        self,
        type: type,
        default: Any,
        help: str,
        *,
        minimum: float | None = None,
        maximum: float | None = None,
        choices: tuple[str, ...] | None = None,
        unset: float | None = None,
        mutable: bool = False,
        check: Callable[[Any], Any] | None = None,
    ) -> None:
        self.type, self.default, self.help = type, default, help
        self.minimum, self.maximum, self.choices = minimum, maximum, choices
        self.unset, self.mutable, self.check = unset, mutable, check
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @property
    def key(self) -> str:
        return self.name.replace("_", "-")

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else instance.__dict__.get(self.name, self.default)

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self.name] = self.parse(value)

    def parse(self, value: Any) -> Any:
        """The value in the option's own type.

        Raises:
            ConfigError: It cannot be read, is out of range, or is none of the choices.
        """
        if value is None or (self.unset is not None and value == self.unset):
            return None if self.default is None or self.unset is not None else self.default
        try:
            if self.type is bool and isinstance(value, str):
                word = value.strip().lower()
                if word not in _TRUE | _FALSE:
                    raise ValueError("neither true nor false")
                value = word in _TRUE
            else:
                value = self.type(value)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{self.key}={value!r} is not a valid {self.type.__name__}") from error
        if self.unset is not None and value == self.unset:
            return None
        if self.choices is not None and value not in self.choices:
            known = ", ".join(filter(None, self.choices))
            hint = f"use one of {known}{', or leave it empty' if '' in self.choices else ''}"
            raise ConfigError(f"{self.key}={value!r} is not known", hint=hint)
        low, high = self.minimum, self.maximum
        if (low is not None and not value >= low) or (high is not None and not value <= high):
            raise ConfigError(f"{self.key}={value} is out of range", hint=f"use {_range(low, high)}")
        return self._checked(value) if self.check else value

    def _checked(self, value: Any) -> Any:
        assert self.check is not None
        try:
            return self.check(value)
        except ConfigError as error:
            if self.key in error.message:
                raise
            raise ConfigError(f"{self.key}: {error.message}", hint=error.hint) from error


def _range(low: float | None, high: float | None) -> str:
    if low is None:
        return f"at most {high:g}"
    return f"at least {low:g}" if high is None else f"{low:g} to {high:g}"


def option(type: type, default: Any, help: str, **constraints: Any) -> Any:
    """Declares a setting as a class attribute; see ``Option`` for the arguments.

    Raises:
        ConfigError: A type that no property has, or a default that does not fit.
    """
    if type not in (bool, int, float, str):
        name = getattr(type, "__name__", repr(type))
        raise ConfigError(f"an option cannot be of type {name}", hint="use bool, int, float or str")
    if default is not None:
        # What ``check`` names may be defined further below.
        trial = Option(type, default, help, **{**constraints, "check": None})
        trial.name = "default"
        trial.parse(default)
    return Option(type, default, help, **constraints)


class Settings:
    """Base of classes with ``option()`` attributes; keyword arguments set them.

    Raises:
        UnknownNameError: A keyword that is no option; the message lists those that are.
        ConfigError: A value that does not fit.
    """

    def __init__(self, **values: Any) -> None:
        self.update(values)

    def update(self, values: Mapping[str, Any]) -> None:
        """Sets several options by attribute name or hyphenated key."""
        known = self.options()
        for key, value in values.items():
            name = key.replace("-", "_")
            if name not in known:
                raise UnknownNameError("setting", key, (o.key for o in known.values()))
            setattr(self, name, value)

    @classmethod
    def options(cls) -> dict[str, Option]:
        """The options by attribute name, base classes first, in order of declaration."""
        found: dict[str, Option] = {}
        for base in reversed(cls.__mro__):
            found.update({n: o for n, o in vars(base).items() if isinstance(o, Option)})
        return found

    def values(self) -> dict[str, Any]:
        """The current values by attribute name."""
        return {name: getattr(self, name) for name in self.options()}
