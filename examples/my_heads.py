"""Decoding of one's own for a network file: boxes of a raw YOLO export, the best class of each, the strongest 20.

gst-launch-1.0 filesrc location=VIDEO ! decodebin ! videoconvert \
  ! pyinfer model=yolo.onnx head=examples/my_heads.py:decode reload=true ! pyoverlay ! videoconvert ! autovideosink
"""

import numpy as np

from gstinfer import Detections


def decode(outputs, transforms):
    results = []
    for rows, transform in zip(outputs["output0"].transpose(0, 2, 1), transforms):
        score, class_id = rows[:, 4:].max(1), rows[:, 4:].argmax(1)
        best = np.argsort(-score)[:20][np.sort(score)[::-1][:20] > 0.5]
        centre, half = rows[best, :2], rows[best, 2:4] / 2
        boxes = transform.boxes_to_frame(np.concatenate([centre - half, centre + half], 1))
        results.append(Detections(boxes, score[best], class_id[best]))
    return results
