"""The three numbers a coordinate against the textbook filter with its 8 x 8 matrices."""

from __future__ import annotations

import numpy as np
import pytest

from gstinfer.trackers import kalman


class Textbook:
    """x' = Fx, P' = FPF' + Q; K = PH'/S, x += Ky, P -= KSK'."""

    def __init__(self, z: np.ndarray) -> None:
        size = z[[2, 3, 2, 3]]
        self.x = np.concatenate([z, np.zeros(4)])
        self.p = np.diag(np.concatenate([2 * size / 20, 10 * size / 160]) ** 2)
        self.h = np.eye(4, 8)

    def predict(self, dt: float) -> None:
        size = self.x[[2, 3, 2, 3]]
        f = np.eye(8) + dt * np.eye(8, k=4)
        self.x = f @ self.x
        self.p = f @ self.p @ f.T + dt * np.diag(np.concatenate([size / 20, size / 160]) ** 2)

    def correct(self, z: np.ndarray) -> None:
        size = self.x[[2, 3, 2, 3]]
        s = self.h @ self.p @ self.h.T + np.diag((size / 20) ** 2)
        gain = self.p @ self.h.T @ np.linalg.inv(s)
        self.x = self.x + gain @ (z - self.h @ self.x)
        self.p = self.p - gain @ s @ gain.T


def test_equals_the_textbook_filter() -> None:
    rng = np.random.default_rng(0)
    z = np.concatenate([rng.uniform(100, 500, (6, 2)), rng.uniform(20, 90, (6, 2))], 1)
    tracks = np.zeros(6, np.dtype(kalman.STATE))
    kalman.initiate(tracks, corners(z))
    books = [Textbook(row) for row in z]
    for step in range(25):
        dt = rng.uniform(0.2, 3, 6)
        z = z + np.array([4, -2, 0.3, 0.2]) * dt[:, None] + rng.normal(0, 1, z.shape)
        kalman.predict(tracks, dt)
        for book, d in zip(books, dt):
            book.predict(d)
        if step % 4:
            assert kalman.correct(tracks, corners(z)) is tracks
            for book, row in zip(books, z):
                book.correct(row)
        assert tracks["position"] == pytest.approx(np.array([b.x[:4] for b in books]))
        assert tracks["velocity"] == pytest.approx(np.array([b.x[4:] for b in books]))
        for name, rows, columns in (("var_position", 0, 0), ("covariance", 0, 4), ("var_velocity", 4, 4)):
            block = np.array([np.diag(b.p[rows : rows + 4, columns : columns + 4]) for b in books])
            assert tracks[name] == pytest.approx(block)


def corners(z: np.ndarray) -> np.ndarray:
    return np.concatenate([z[:, :2] - z[:, 2:] / 2, z[:, :2] + z[:, 2:] / 2], 1)


def test_boxes_never_lose_their_size() -> None:
    tracks = np.zeros(1, np.dtype(kalman.STATE))
    kalman.initiate(tracks, np.array([[10.0, 10, 12, 12]]))
    tracks["velocity"] = [[0, 0, -5, -5]]
    for _ in range(10):
        kalman.predict(tracks, np.ones(1))
    box = kalman.boxes(tracks)[0]
    assert box[2] - box[0] >= 1 and box[3] - box[1] >= 1 and (tracks["var_position"] > 0).all()
