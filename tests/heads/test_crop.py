"""Classifiers and class maps of networks that see the middle of a frame."""

from __future__ import annotations

import numpy as np
import pytest

from gstinfer.geometry import ImageTransform
from gstinfer.heads import TensorInfo, choose

from .support import network


@pytest.mark.parametrize(
    ("metadata", "dtype", "resize"),
    [
        ({"task": "classify", "names": "{0: 'a', 1: 'b'}"}, "float32", "crop"),
        ({"head": "classify"}, "float32", "crop"),
        ({"head": "classify"}, "uint8", "stretch"),
    ],
)
def test_what_a_classifier_sees(metadata, dtype, resize):
    info = network({"o": (1, 2)}, metadata=metadata, inputs=[TensorInfo("images", (1, 3, 64, 64), dtype)])
    head = choose(info, metadata.get("head", "auto")).head
    assert head.preprocessing(info)["resize"] == resize


def test_a_class_map_of_the_middle_says_nothing_of_the_rest():
    info = network({"o": (1, 2, 8, 8)}, labels=("a", "b"))
    head = choose(info, "semantic").head
    scores = np.zeros((1, 2, 8, 8), np.float32)
    scores[0, 1, :, 4:] = 1
    transform = ImageTransform.plan((128, 64), (64, 64), "crop")
    (found,) = head.decode({"o": scores}, [transform], head.thresholds)
    assert found.class_map.shape == (8, 16)
    assert (found.class_map[:, :4] == -1).all() and (found.class_map[:, 12:] == -1).all()
    assert (found.class_map[:, 4:8] == 0).all() and (found.class_map[:, 8:12] == 1).all()
