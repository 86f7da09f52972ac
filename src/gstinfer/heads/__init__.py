"""Raw tensors of a network -> results, one file per family, and how a family is decided."""

from gstinfer.heads.base import Head, NetworkInfo, TensorInfo, Thresholds
from gstinfer.heads.choose import LAYOUTS, NAMES, Decision, choose

__all__ = ["LAYOUTS", "NAMES", "Decision", "Head", "NetworkInfo", "TensorInfo", "Thresholds", "choose"]
