"""A look at the results of each frame: only what stands in a zone stays, and the zone's fill is written beside it.

gst-launch-1.0 filesrc location=VIDEO ! decodebin ! videoconvert \
  ! pyinfer model=nanodet-coco callback=examples/zone.py:inside reload=true ! pyoverlay ! videoconvert ! autovideosink
"""

from gstinfer import Text

LEFT, TOP, RIGHT, BOTTOM = 0.3, 0.0, 1.0, 1.0
"""Of the frame's width and height."""


def inside(frame, results):
    found = results.detections
    if found is None:
        return
    x, y = (found.xyxy[:, 0] + found.xyxy[:, 2]) / 2 / frame.width, found.xyxy[:, 3] / frame.height
    results.detections = found[(x >= LEFT) & (x <= RIGHT) & (y >= TOP) & (y <= BOTTOM)]
    results.texts.append(Text(f"{len(results.detections)} in the zone"))
