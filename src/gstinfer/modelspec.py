"""The text that names a model, and how it becomes one."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import linecache
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gstinfer import registry
from gstinfer.errors import ConfigError, GstInferError, ModelLoadError, UnknownNameError
from gstinfer.modelbase import Model, WrappedModel
from gstinfer.settings import Settings

__all__ = ["SUFFIXES", "ModelSpec", "construct"]

SUFFIXES = {
    ".onnx": "onnx",
    ".engine": "tensorrt",
    ".plan": "tensorrt",
    ".pt2": "torch",
    ".torchscript": "torch",
    ".tflite": "tflite",
    ".xml": "openvino",
}
"""File ending -> runtime."""

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class ModelSpec:
    """What a ``model=`` text names.

    Forms: a ready model (``nanodet-coco``), ``runtime:target`` (``onnx:yolo.onnx``), a file whose ending names its runtime
    (``yolo.onnx``), ``module:Name`` and ``path/to/file.py:Name``.

    Attributes:
        text: As the user wrote it.
        kind: ``"ready"``, ``"runtime"`` or ``"python"``.
        name: Ready model, runtime, or module or file.
        target: File or address for a runtime; attribute for Python.
    """

    text: str
    kind: str
    name: str
    target: str = ""

    @classmethod
    def parse(cls, text: str) -> ModelSpec:
        """Reads a spec.

        Raises:
            ConfigError: Empty.
            UnknownNameError: Neither a ready model, a known ending nor ``module:Name``.
        """
        text = text.strip()
        if not text:
            raise ConfigError(
                "no model is set", hint="set model=nanodet-coco, model=FILE.onnx or model=my_models:MyModel"
            )
        if text in registry.names("model"):
            return cls(text, "ready", text)
        head, colon, rest = text.partition(":")
        if colon and head in registry.names("runtime"):
            return cls(text, "runtime", head, rest)
        suffix = Path(text).suffix.lower()
        if suffix in SUFFIXES:
            return cls(text, "runtime", SUFFIXES[suffix], text)
        module, colon, attribute = text.rpartition(":")
        if colon and module and attribute and "/" not in attribute:
            return cls(text, "python", module, attribute)
        if suffix == ".py":
            raise ConfigError(f"the model {text!r} names a file but no class in it", hint=f"write {text}:ClassName")
        if suffix in (".pt", ".pth"):
            raise ConfigError(
                f"the model {text!r} is a PyTorch checkpoint, which does not say how to build its network",
                hint=f"use ultralytics:{text}, or a module:Name that loads it",
            )
        endings = sorted(ending for ending, runtime in SUFFIXES.items() if runtime in registry.names("runtime"))
        raise UnknownNameError(
            "model",
            text,
            registry.names("model"),
            hint=f"or give a file ({', '.join(endings)}), module:Name or file.py:Name",
        )

    def build(self, **arguments: Any) -> Model:
        """Makes the model, not yet loaded. Arguments go to the user's class or factory.

        Raises:
            ModelLoadError: File, module or name missing, or the constructor raised.
            ConfigError: An argument that the model does not take; the message lists those it takes.
        """
        if self.kind == "ready":
            return construct(registry.find("model", self.name), arguments, self.text)
        if self.kind == "runtime":
            factory = registry.find("runtime", self.name)
            return construct(factory, {"path": self.target, **arguments}, self.text)
        return construct(_attribute(self), arguments, self.text)

    def source(self) -> Path | None:
        """The file that a ``"python"`` spec names or that holds its module, without running it; None where it is not found."""
        path = Path(self.name)
        if path.suffix != ".py":
            _search_here()
            try:
                found = importlib.util.find_spec(self.name)
            except Exception:  # of a package around it, which is run
                return None
            path = Path(found.origin) if found is not None and found.has_location and found.origin else path
        return path if path.is_file() else None

    def target_object(self, *, fresh: bool = False, role: str = "model") -> Any:
        """The class, function or object that a ``"python"`` spec names.

        Args:
            fresh: Whether its file is run again, though it was imported before. On an error the earlier module stays.
            role: What it is to the user, for messages.

        Raises:
            ModelLoadError: It cannot be imported.
        """
        return _attribute(self, fresh, role)


def _search_here() -> None:
    """Has modules of the current folder found first."""
    here = str(Path.cwd())
    if sys.path[:1] != [here]:
        sys.path.insert(0, here)


def _attribute(spec: ModelSpec, fresh: bool = False, role: str = "model") -> Any:
    """The Python object a spec names; the current folder is searched first."""
    path = Path(spec.name)
    try:
        if path.suffix == ".py":
            if not path.is_file():
                raise ModelLoadError(
                    f"the {role} file {spec.name!r} does not exist", hint=f"looked in {Path.cwd()}"
                )
            module = _load_file(path)
        else:
            _search_here()
            module = importlib.import_module(spec.name)
            file = getattr(module, "__file__", None)
            if fresh and file:
                module = _run(spec.name, Path(file))
    except ModelLoadError:
        raise
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if spec.name == missing or spec.name.startswith(missing + "."):
            raise ModelLoadError(
                f"the {role} {spec.text!r} needs a module {spec.name!r}, which is not found",
                hint=f"looked in {Path.cwd()} and on Python's path",
            ) from error
        raise ModelLoadError(
            f"importing {spec.name!r} failed: {error}", hint=f"pip install the package that brings {missing!r}"
        ) from error
    except (Exception, SystemExit) as error:
        raise ModelLoadError(f"importing {spec.name!r} failed: {type(error).__name__}: {error}") from error
    target: Any = module
    for part in spec.target.split("."):
        try:
            target = getattr(target, part)
        except AttributeError:
            public = [n for n in vars(module) if not n.startswith("_")]
            raise ModelLoadError(
                f"{spec.name!r} has no {spec.target!r}", hint=f"it has {', '.join(public[:20]) or 'nothing public'}"
            ) from None
    return target


def _load_file(path: Path) -> Any:
    """A file's module under a private name, so that two files of one name do not collide; its folder is importable."""
    path = path.resolve()
    name = f"_gstinfer_user_{path.stem}_{zlib.crc32(str(path).encode()):08x}"
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return _run(name, path)


def _run(name: str, path: Path) -> Any:
    """A module made from what its file holds now; when that fails the earlier one stays.

    The source is compiled here: a cached compilation counts as current when time and size agree to the second and byte.
    """
    module_spec = importlib.util.spec_from_file_location(name, path)
    if module_spec is None or path.suffix != ".py":
        raise ModelLoadError(f"{path} cannot be read as Python")
    module = importlib.util.module_from_spec(module_spec)
    before = sys.modules.get(name)
    sys.modules[name] = module
    linecache.checkcache(str(path))
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), vars(module))
    except BaseException:
        if before is None:
            sys.modules.pop(name, None)
        else:
            sys.modules[name] = before
        raise
    return module


def construct(target: Any, arguments: dict[str, Any], text: str) -> Model:
    """Calls a class or factory, or wraps a function or object.

    Args:
        target: A Model or its class, an object with ``predict`` or its class, a function that makes one, or a function
            that takes a batch.
        arguments: For the class or function; keys may be hyphenated.
        text: The spec, for messages.

    Raises:
        ModelLoadError: It is none of these, or its constructor raised.
        ConfigError: An argument that it does not take; the message lists those it takes.
    """
    arguments = {key.replace("-", "_"): value for key, value in arguments.items()}
    if isinstance(target, type) or _is_factory(target, arguments):
        taken, options = _split(target, arguments, text)
        try:
            target = target(**taken)
        except GstInferError:
            raise
        except (Exception, SystemExit) as error:
            raise ModelLoadError(f"{text} could not be made: {type(error).__name__}: {error}") from error
        arguments = options
    elif inspect.isfunction(target) and arguments:
        taken, _ = _split(target, arguments, text, bound=1)
        target, arguments = functools.partial(target, **taken), {}
    if isinstance(target, Model):
        target.update(arguments)
        return target
    if arguments:
        raise UnknownNameError("model argument", next(iter(arguments)), [], hint=f"{text} takes none")
    if isinstance(target, type):
        raise ModelLoadError(f"{text} made the class {target.__name__}, not a model", hint="return an instance of it")
    if callable(getattr(target, "predict", None)):
        return WrappedModel(target, target.predict)
    if callable(target):
        return WrappedModel(target, target)
    raise ModelLoadError(
        f"{text} is a {type(target).__name__}, not a model",
        hint="name a Model subclass, a function predict(batch), or an object with a predict method",
    )


def _is_factory(target: Any, arguments: dict[str, Any]) -> bool:
    """A function that makes a model rather than being one: what it requires is given, so that no batch is wanted."""
    if not callable(target) or isinstance(target, Model) or hasattr(target, "predict"):
        return False
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return False
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        return False
    required = {p.name for p in parameters if p.default is inspect.Parameter.empty and p.kind in POSITIONAL}
    return required <= set(arguments)


def _split(
    target: Any, arguments: dict[str, Any], text: str, bound: int = 0
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments for the call, and those that are ``option()``s which the constructor does not take itself.

    Args:
        target: Class or function.
        arguments: Under Python names.
        text: The spec, for messages.
        bound: First parameters that are not for the user.
    """
    try:
        parameters = list(inspect.signature(target).parameters.values())[bound:]
    except (TypeError, ValueError):
        return arguments, {}
    options = set(target.options()) if isinstance(target, type) and issubclass(target, Settings) else set()
    named = {p.name for p in parameters if p.kind in (*POSITIONAL[1:], inspect.Parameter.KEYWORD_ONLY)}
    anything = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
    for key in arguments:
        if key not in named | options and not (anything and not options):
            known = sorted((named | options) - {"path"})
            raise UnknownNameError("model argument", key, known, hint="" if known else f"{text} takes none")
    taken = {key: value for key, value in arguments.items() if key in named or anything}
    return taken, {key: value for key, value in arguments.items() if key not in taken}
