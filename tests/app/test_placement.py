"""Which decoder and which elements a stream gets, as a function of what is known."""

from __future__ import annotations

import pytest

from gstinfer.app.placement import UPRIGHT, Decoder, Pixels, decoders_to_try, nvdec_number, surfaces, way
from gstinfer.image import Device

CPU, GPU0, GPU1 = Device(), Device("cuda", 0), Device("cuda", 1)
H264 = [Decoder("avdec_h264"), Decoder("nvh264dec", 0), Decoder("nvh264device1dec", 1), Decoder("nvh264sldec", 0)]


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("nvh264dec", 0), ("nvh264sldec", 0), ("nvh265device1dec", 1), ("nvh264sldevice12dec", 12), ("nvav1dec", 0),
        ("nvmpeg2videodec", 0), ("avdec_h264", None), ("nvv4l2decoder", None), ("nvh264enc", None), ("vah264dec", None),
    ],
)  # fmt: skip
def test_the_gpu_of_a_decoder_by_its_name(name, number):
    assert nvdec_number(name) == number


@pytest.mark.parametrize(
    ("device", "names"),
    [(CPU, ("avdec_h264",)), (GPU0, ("nvh264dec", "nvh264sldec")), (GPU1, ("nvh264device1dec",))],
)
def test_a_stream_gets_the_nvdec_of_its_own_gpu_and_the_cpu_none(device, names):
    assert decoders_to_try("video/x-h264", H264, device) == names


def test_what_nvdec_does_not_take_is_decoded_on_the_cpu():
    assert decoders_to_try("video/x-h264", H264, GPU0, nvdec=False) == ("avdec_h264",)
    assert decoders_to_try("video/x-h264", H264, Device("cuda", 2)) == ("avdec_h264",)
    assert decoders_to_try("image/jpeg", [Decoder("nvjpegdec", 0), Decoder("jpegdec")], GPU0) == ("jpegdec",)
    assert decoders_to_try("video/x-h264", [Decoder("nvh264dec", 0)], CPU) == ()


def names(found) -> list[str]:
    return [factory for factory, _ in found.elements]


def test_nvdec_frames_go_straight_to_the_model():
    found = way(GPU0, Pixels(True, True, "NV12", "video/x-h264"))
    assert found.elements == () and found.warning == ""


@pytest.mark.parametrize(
    ("pixels", "word"),
    [
        (Pixels(True, True, "NV12", "video/x-h264", "rotate-90"), "turned (rotate-90)"),
        (Pixels(True, False, "Y444", "video/x-h264"), "converted from Y444"),
    ],
)
def test_frames_that_the_gpu_cannot_turn_or_convert_go_there_and_back(pixels, word):
    found = way(GPU1, pixels)
    assert names(found) == ["cudadownload", "capsfilter", "videoconvert", "videoflip", "cudaupload", "capsfilter"]
    assert word in found.warning and "copied from cuda:1 and back" in found.warning
    ids = [values["cuda_device_id"] for factory, values in found.elements if factory.startswith("cuda")]
    assert ids == [1, 1] and "CUDAMemory" in found.elements[-1][1]["caps"]


@pytest.mark.parametrize(
    ("codec", "warning"),
    [
        ("", "its frames are made on the CPU; each frame is copied to cuda:1"),
        ("image/jpeg", "image/jpeg is decoded on the CPU; each frame is copied to cuda:1"),
        ("video/x-h264", "cuda:1 has no decoder for video/x-h264; each frame is copied to cuda:1"),
    ],
)
def test_frames_of_the_cpu_are_turned_there_and_uploaded(codec, warning):
    found = way(GPU1, Pixels(False, True, "I420", codec, UPRIGHT))
    assert names(found) == ["videoconvert", "videoflip", "cudaupload", "capsfilter"] and found.warning == warning


def test_surfaces_are_as_many_as_nvcodec_allows_at_most():
    assert surfaces(5) == 13
    assert surfaces(30 + 64) == 64
