"""A classifier in a few lines: the colour that the middle of an object has most of.

gst-launch-1.0 filesrc location=VIDEO ! decodebin ! videoconvert \
  ! pyinfer model=nanodet-coco unique-id=1 ! pytrack \
  ! pyinfer model=examples/clothes.py:Color process-mode=2 unique-id=2 infer-on-gie-id=1 infer-on-class-ids=0 \
  ! pyoverlay ! videoconvert ! autovideosink
"""

import cv2
import numpy as np

from gstinfer import Classifications, Model


class Color(Model):
    labels = ("dark", "light", "gray", "red", "yellow", "green", "cyan", "blue", "magenta")

    def predict(self, batch):
        return [self.look(cv2.cvtColor(p, cv2.COLOR_RGB2HSV)) for p in batch.images("rgb")]

    def look(self, hsv):
        h, w = hsv.shape[:2]
        hue, saturation, value = hsv[h // 5 : h - h // 5, w // 4 : w - w // 4].reshape(-1, 3).T
        plain = np.where(value < 60, 0, np.where(value > 190, 1, 2))
        share = np.bincount(np.where((saturation > 70) & (value >= 60), 3 + (hue + 15) // 30 % 6, plain), minlength=9)
        return Classifications([int(share.argmax())], [share.max() / share.sum()])
