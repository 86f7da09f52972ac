"""RF-DETR by its makers' package: its own loading, preprocessing and decoding."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gstinfer.errors import ConfigError, MissingDependencyError, ModelLoadError, PredictError, UnknownNameError
from gstinfer.frames import FrameBatch
from gstinfer.image import Device
from gstinfer.modelbase import Model
from gstinfer.models.files import check_file, one_line
from gstinfer.models.labels import LabelsOption
from gstinfer.settings import option
from gstinfer.unwinder import cxx_library

__all__ = ["RfDetrModel", "rfdetr_model"]

VARIANTS = {
    "base": "RFDETRBase",
    "nano": "RFDETRNano",
    "small": "RFDETRSmall",
    "medium": "RFDETRMedium",
    "large": "RFDETRLarge",
    "seg": "RFDETRSegPreview",
    "seg-nano": "RFDETRSegNano",
    "seg-small": "RFDETRSegSmall",
    "seg-medium": "RFDETRSegMedium",
    "seg-large": "RFDETRSegLarge",
}
"""What follows ``rfdetr:`` -> class of the package; a release may lack some."""


class RfDetrModel(Model):
    """A network of the ``rfdetr`` package; what it decides itself is decided by it.

    Args:
        path: A key of ``VARIANTS``.
        **options: See the attributes below.
    """

    labels = LabelsOption(str, None, "Class names: a file of one name a line, or a,b,c", mutable=True)
    confidence_threshold = option(float, 0.5, "Least confidence of an object", minimum=0, maximum=1, mutable=True)
    weights = option(str, "", "Checkpoint file; the variant's own name, looked for here, when unset")
    download = option(bool, False, "Whether weights that are missing may be fetched from the makers' server")

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(**options)
        if path not in VARIANTS:
            raise UnknownNameError("RF-DETR variant", path, VARIANTS)
        self.path = path
        self.known_labels: Any = None
        self._net: Any = None

    def labels_changed(self, labels: Any) -> None:
        """Nothing to hold new labels against: names beyond the classes are never asked for."""

    def load(self, device: Device) -> None:
        """Opens the network.

        Raises:
            MissingDependencyError: rfdetr, or what it needs, is not installed.
            ConfigError: This release of rfdetr lacks the variant.
            ModelLoadError: The weights are missing and may not be fetched, or do not fit.
        """
        package = _rfdetr()
        made = getattr(package, VARIANTS[self.path], None)
        if made is None:
            raise ConfigError(
                f"this release of rfdetr has no {VARIANTS[self.path]}", hint="pip install --upgrade rfdetr"
            )
        arguments: dict[str, Any] = {"device": str(device)}
        weights = self._weights(made)
        if weights is not None:
            arguments["pretrain_weights"] = weights
        try:
            self._net = made(**arguments)
        except Exception as error:
            if isinstance(error, ImportError):
                raise MissingDependencyError(error.name or "a library", purpose=f"rfdetr: {one_line(error)}") from error
            raise ModelLoadError(
                f"rfdetr:{self.path} cannot be loaded: {type(error).__name__}: {one_line(error)}",
                hint="check that weights= belong to this variant",
            ) from error
        names = getattr(self._net, "class_names", None)
        self.known_labels = names if isinstance(names, dict) else None if names is None else list(names)

    def _weights(self, made: Any) -> str | None:
        """The checkpoint to open; None where the package may look for its own."""
        if self.weights:
            check_file(self.weights, "RF-DETR weights")
            return str(Path(self.weights).resolve())
        if self.download:
            return None
        config = getattr(made, "_model_config_class", None)
        field = getattr(config, "model_fields", {}).get("pretrain_weights")
        name = str(getattr(field, "default", "") or "")
        if name and Path(name).is_file():
            return str(Path(name).resolve())
        raise ModelLoadError(
            f"the weights {name or 'of this variant'} of rfdetr:{self.path} are not in {Path.cwd()}",
            hint="set weights=FILE; nothing is fetched unless download=true is set",
        )

    def predict(self, batch: FrameBatch) -> Sequence[Any]:
        """The package's own results, one per frame; ``convert`` makes them ours.

        Raises:
            PredictError: The model is not loaded.
        """
        if self._net is None:
            raise PredictError(f"rfdetr:{self.path} is not loaded", hint="call load(device) first")
        if not len(batch):
            return []
        found = self._net.predict(batch.images("rgb"), threshold=self.confidence_threshold)
        return list(found) if isinstance(found, list) else [found]

    def close(self) -> None:
        """Lets go of the network; ``load`` may follow."""
        self._net = None


def rfdetr_model(path: str, **options: Any) -> RfDetrModel:
    """The model behind ``rfdetr:VARIANT``; the options are those of ``RfDetrModel``.

    Raises:
        UnknownNameError: No such variant.
        ConfigError: No variant, or an option that is unknown or does not fit.
    """
    if not str(path).strip():
        raise ConfigError("no RF-DETR variant is named", hint=f"write rfdetr:base, or one of {', '.join(VARIANTS)}")
    return RfDetrModel(path, **options)


def _rfdetr() -> Any:
    try:
        with cxx_library():
            import rfdetr
    except ImportError as error:
        name = error.name or "rfdetr"
        if name.partition(".")[0] == "rfdetr":
            raise MissingDependencyError("rfdetr", extra="rfdetr", purpose="RF-DETR models") from error
        raise MissingDependencyError(name, purpose="RF-DETR models") from error
    return rfdetr
