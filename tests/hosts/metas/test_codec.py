"""Results survive the codec with every column and every bit."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gstinfer import (
    Attribute,
    Classifications,
    Detections,
    FrameResults,
    HostError,
    Mask,
    SegmentationMap,
    Tensors,
    Text,
)
from gstinfer.hosts.metas.codec import decode, encode

words = st.text(max_size=12)
ids = st.integers(0, 2**31 - 1)
scores = st.floats(0, 1, width=32)
jsons = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
dtypes = st.sampled_from(["<f4", "<f8", "<f2", ">i4", "<i8", "|u1", "|b1", "<U5", "<M8[ns]", "<c8"])
float32 = st.floats(-1e4, 1e4, width=32)


def same(a, b) -> bool:
    if is_dataclass(a):
        return type(a) is type(b) and all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and a == b


@st.composite
def masks(draw):
    shape = draw(st.tuples(st.integers(0, 9), st.integers(0, 9)))
    return Mask(draw(st.integers(-50, 4000)), draw(st.integers(-50, 4000)), draw(hnp.arrays(bool, shape)))


@st.composite
def detections(draw):
    n = draw(st.integers(0, 5))

    def column(dtype, *shape, of=float32):
        return draw(hnp.arrays(dtype, (n, *shape), elements=of))

    def maybe(make):
        return make() if draw(st.booleans()) else None

    def rows(of):
        return draw(st.lists(of, min_size=n, max_size=n))

    attributes = st.lists(st.builds(Attribute, words, ids, scores, ids), max_size=3).map(tuple)
    arrays = dtypes.flatmap(lambda d: hnp.arrays(d, st.just((n,)) | st.just((n, 2))))
    return Detections(
        xyxy=column(np.float32, 4),
        confidence=column(np.float32, of=scores),
        class_id=column(np.int32, of=ids),
        tracker_id=maybe(lambda: column(np.int64, of=st.integers(-1, 2**63 - 1))),
        label=maybe(lambda: rows(words)),
        component_id=column(np.int32, of=ids),
        mask=maybe(lambda: rows(masks())),
        obb=maybe(lambda: column(np.float32, 5)),
        keypoints=maybe(lambda: column(np.float32, draw(st.integers(0, 3)), 3)),
        attributes=maybe(lambda: rows(attributes)),
        parent=maybe(lambda: column(np.int64, of=st.integers(-1, max(-1, n - 1)))),
        data=draw(st.dictionaries(words, arrays | st.lists(jsons, min_size=n, max_size=n), max_size=2)),
    )


@st.composite
def classifications(draw):
    n = draw(st.integers(0, 4))
    return Classifications(
        draw(hnp.arrays(np.int32, n, elements=ids)),
        draw(hnp.arrays(np.float32, n, elements=scores)),
        draw(st.none() | st.lists(words, min_size=n, max_size=n)),
        draw(ids),
    )


@st.composite
def segmentations(draw):
    shape = draw(st.tuples(st.integers(0, 5), st.integers(0, 5)))
    high = draw(st.sampled_from([100, 127, 128, 40_000, 2**31 - 1]))
    return SegmentationMap(
        draw(hnp.arrays(np.int32, shape, elements=st.integers(-1, high))),
        draw(st.none() | st.lists(words, max_size=3)),
        draw(st.none() | hnp.arrays(np.float32, shape, elements=scores)),
        draw(ids),
    )


numbers = st.none() | st.integers(0, 2**63)
texts = st.builds(Text, words, jsons, numbers, numbers, words, words, numbers, numbers, words, ids)
tensors = st.builds(
    Tensors,
    st.dictionaries(words, dtypes.flatmap(lambda d: hnp.arrays(d, hnp.array_shapes(min_dims=0, min_side=0))), max_size=2),
    ids,
)
results = st.builds(
    FrameResults,
    model=words,
    inferred=st.none() | st.booleans(),
    detections=st.none() | detections(),
    classifications=st.lists(classifications(), max_size=2),
    segmentation=st.none() | segmentations(),
    texts=st.lists(texts, max_size=2),
    tensors=st.lists(tensors, max_size=2),
    stream_id=words,
)


@settings(max_examples=200, deadline=None)
@given(results, st.integers(1, 8192), st.integers(1, 8192), st.floats(0.1, 10))
def test_round_trip(value, width, height, aspect):
    raw = encode(value, width, height, aspect)
    found, size, found_aspect = decode(raw)
    assert same(found, value)
    assert (size, found_aspect) == ((width, height), aspect)
    assert encode(found, width, height, aspect) == raw


def test_every_field_is_carried():
    """A field that is added to a result kind must come through the codec too."""
    one = np.ones
    full = FrameResults(
        "m",
        False,
        Detections(
            one((1, 4)), one(1) / 2, one(1), one(1) * 5, ["a"], one(1) * 3, [Mask(1, 2, one((2, 3), bool))],
            one((1, 5)), one((1, 2, 3)), [(Attribute("b", 1, 0.5, 2),)], {"x": one(1), "y": [{"z": one(2)}]}, one(1) * 0,
        ),
        [Classifications([4], [0.5], ["c"], 6)],
        SegmentationMap(one((2, 2)), ["d"], one((2, 2), np.float32), 7),
        [Text("e", {"f": 1}, 1, 2, "g", "h", 3, 4, "i", 8, "j", 9)],
        [Tensors({"j": one((2, 0, 3))}, 9)],
        "k",
    )  # fmt: skip
    empty = FrameResults()
    for field in fields(FrameResults):
        assert not same(getattr(full, field.name), getattr(empty, field.name)), f"give {field.name} a value here"
    found = decode(encode(full, 8, 8))[0]
    for field in fields(FrameResults):
        assert same(getattr(found, field.name), getattr(full, field.name)), field.name


def test_nothing_known_is_small():
    raw = encode(FrameResults(), 1920, 1080)
    assert same(decode(raw)[0], FrameResults()) and len(raw) < 160


def test_numbers_of_numpy_become_plain_ones():
    found = decode(encode(FrameResults(texts=[Text("t", {"a": np.float32(0.5), "b": [np.int64(3)]})]), 1, 1))[0]
    assert found.texts[0].data == {"a": 0.5, "b": [3]}


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (FrameResults(detections=Detections([[1, 2, 3, 4]], data={"x": [object()]})), "type object"),
        (FrameResults(detections=Detections([[1, 2, 3, 4]], data={"x": np.array([None])})), "dtype object"),
        (FrameResults(texts=[Text("t", data=b"raw")]), "type bytes"),
        (FrameResults(tensors=[Tensors({"t": np.array([{}])})]), "dtype object"),
    ],
)
def test_what_cannot_be_carried_is_said(value, what):
    with pytest.raises(HostError, match=what) as caught:
        encode(value, 1, 1)
    assert caught.value.hint


def test_damaged_bytes():
    raw = encode(FrameResults(detections=Detections([[1, 2, 3, 4]])), 1, 1)
    with pytest.raises(HostError, match="cut short"):
        decode(raw[:5])
    with pytest.raises(HostError, match="damaged"):
        decode(raw[:-8])
    with pytest.raises(HostError, match="version 99"):
        decode(raw[:4] + (99).to_bytes(4, "little") + raw[8:])
    with pytest.raises(HostError, match="version"):
        decode(b"JUNK" + raw[4:])
