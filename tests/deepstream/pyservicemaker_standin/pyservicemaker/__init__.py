# SPDX-License-Identifier: Apache-2.0
"""A stand-in with pyservicemaker's documented surface and its traps, over the stand-in libraries."""

from . import osd
from ._buffer import Buffer, Tensor, live_buffers
from ._metadata import (
    BatchMetadata,
    ClassifierMetadata,
    DisplayMetadata,
    FrameMetadata,
    LabelInfo,
    ObjectMetadata,
    UserMetadata,
)
from ._pipeline import Flow, Pipeline, Probe


class BatchMetadataOperator:
    """Base of a class whose handle_metadata(batch_meta) a probe calls."""

    def handle_metadata(self, batch_meta: BatchMetadata) -> None:
        raise NotImplementedError


class BufferOperator:
    """Base of a class whose handle_buffer(buffer) a probe calls."""

    def handle_buffer(self, buffer: Buffer) -> bool:
        raise NotImplementedError


__all__ = [
    "BatchMetadata",
    "BatchMetadataOperator",
    "Buffer",
    "BufferOperator",
    "ClassifierMetadata",
    "DisplayMetadata",
    "Flow",
    "FrameMetadata",
    "LabelInfo",
    "ObjectMetadata",
    "Pipeline",
    "Probe",
    "Tensor",
    "UserMetadata",
    "live_buffers",
    "osd",
]
