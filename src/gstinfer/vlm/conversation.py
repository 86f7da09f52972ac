"""A segment as the messages of a chat, in the form that OpenAI's servers made common."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.errors import ConfigError
from gstinfer.vlm.segments import Segment

__all__ = ["conversation", "jpeg", "with_schema"]


def jpeg(picture: NDArray[np.uint8], quality: int) -> bytes:
    """An RGB picture as a JPEG file."""
    import cv2

    good, data = cv2.imencode(".jpg", picture[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not good:
        raise ConfigError(f"a picture of {picture.shape} cannot be written as JPEG")
    return bytes(data)


def conversation(segment: Segment, send: str, quality: int) -> list[dict[str, Any]]:
    """The messages: pictures as JPEG data URLs, oldest first, then the question.

    Args:
        segment: What is asked.
        send: ``"images"`` one by one; ``"video"`` all in one ``video/jpeg`` data URL, which vLLM takes.
        quality: Of the JPEGs.
    """
    pictures = [base64.b64encode(jpeg(image, quality)).decode() for image in segment.images]
    if send == "video":
        content: list[dict[str, Any]] = [
            {"type": "video_url", "video_url": {"url": f"data:video/jpeg;base64,{','.join(pictures)}"}}
        ]
    else:
        content = [
            {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{picture}"}} for picture in pictures
        ]
    content.append({"type": "text", "text": segment.prompt})
    return [*_system(segment), {"role": "user", "content": content}]


def _system(segment: Segment) -> Sequence[dict[str, Any]]:
    return [{"role": "system", "content": segment.system_prompt}] if segment.system_prompt else []


def with_schema(segment: Segment) -> str:
    """The question, with the schema in words, for models that cannot be held to it."""
    if segment.schema is None:
        return segment.prompt
    return f"{segment.prompt}\nAnswer with JSON alone that fits this JSON Schema: {json.dumps(dict(segment.schema))}"
