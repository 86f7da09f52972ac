"""Helpers for tests of elements, models, trackers and publishers; public, for other packages' tests too."""

from __future__ import annotations

from gstinfer.testing.pipelines import Run, run_pipeline

__all__ = ["Run", "run_pipeline"]
