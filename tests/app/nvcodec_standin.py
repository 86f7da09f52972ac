"""Elements of nvcodec's names that do its caps and none of its work: what they call CUDA memory is system memory.

The two copies make a new buffer of each frame, and keep metas as nvcodec does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, ClassVar

from gstinfer.elements.compat import GObject, Gst, GstBase, GstVideo, describe_class, refloat, structure_of

CUDA = "video/x-raw(memory:CUDAMemory)"
DECODER = ("Codec/Decoder/Video/Hardware", "of the tests", "gstinfer")
READABLE = GObject.ParamFlags.READABLE


class Rename(GstBase.BaseTransform):
    """Gives frames another name, as it is; ``to_gpu`` says which."""

    __gtype_name__ = "TestRename"
    __gproperties__: ClassVar[dict[str, Any]] = {
        "cuda-device-id": (int, "device", "GPU", -1, 99, -1, GObject.ParamFlags.READWRITE),
    }
    to_gpu = in_place = True

    def __init__(self) -> None:
        super().__init__()
        refloat(self)
        self.number = -1
        self.set_in_place(self.in_place)

    def do_get_property(self, pspec: Any) -> int:
        return self.number

    def do_set_property(self, pspec: Any, value: int) -> None:
        self.number = value

    def do_transform_caps(self, direction: Any, caps: Any, wanted: Any) -> Any:
        gpu = (direction == Gst.PadDirection.SINK) == self.to_gpu
        made = Gst.Caps.new_empty()
        for i in range(caps.get_size()):
            feature = "memory:CUDAMemory" if gpu else "memory:SystemMemory"
            made.append_structure_full(structure_of(caps, i).copy(), Gst.CapsFeatures.from_string(feature))
        return made if wanted is None else wanted.intersect_full(made, Gst.CapsIntersectMode.FIRST)

    def do_transform_ip(self, buffer: Any) -> Any:
        return Gst.FlowReturn.OK


class Copy(Rename):
    """Copies a frame, and of its metas those that ``gst_cuda_base_transform_transform_meta`` says yes to."""

    __gtype_name__ = "TestCudaCopy"
    in_place = False

    def do_transform_size(self, direction: Any, caps: Any, size: int, other_caps: Any) -> tuple[bool, int]:
        return True, size

    def do_transform(self, source: Any, target: Any) -> Any:
        target.fill(0, source.extract_dup(0, source.get_size()))
        video = GstVideo.buffer_get_video_meta(source)
        if video is not None:
            layout = video.format, video.width, video.height, video.n_planes, video.offset, video.stride
            GstVideo.buffer_add_video_meta_full(target, video.flags, *layout)
        return Gst.FlowReturn.OK

    def do_transform_meta(self, target: Any, meta: Any, source: Any) -> bool:
        return set(Gst.meta_api_type_get_tags(meta.info.api)) <= {"video"}


class Upload(Copy):
    __gtype_name__ = "TestCudaUpload"


class Download(Copy):
    __gtype_name__ = "TestCudaDownload"
    to_gpu = False


class Nvdec:
    """H.264 by libav, in NV12 that is called CUDA memory.

    No GObject class of its own: instances begin as their first one, whose class has no pad templates.
    """

    number, format, broken = 0, "NV12", False
    surfaces: ClassVar[list[int]] = []
    """What was asked for, of all instances in order."""

    def __init__(self) -> None:
        super().__init__()
        refloat(self)
        chain = [Gst.ElementFactory.make(name) for name in ("avdec_h264", "videoconvert", "capsfilter")]
        chain.append(Rename())
        chain[2].set_property("caps", Gst.Caps.from_string(f"video/x-raw,format={self.format}"))
        if self.broken:
            chain.insert(0, Gst.ElementFactory.make("identity"))
            chain[0].set_property("error-after", 1)
        for element in chain:
            self.add(element)
        for left, right in pairwise(chain):
            assert left.link(right)
        for name, element in (("sink", chain[0]), ("src", chain[-1])):
            template = self.get_pad_template(name)
            self.add_pad(Gst.GhostPad.new_from_template(name, element.get_static_pad(name), template))

    def do_get_property(self, pspec: Any) -> int:
        return self.number

    def do_set_property(self, pspec: Any, value: int) -> None:
        assert pspec.name == "num-output-surfaces"
        self.surfaces.append(value)


NUMBER = {"cuda-device-id": (int, "device", "GPU", 0, 99, 0, READABLE)}
# From 1.24 on.
ROOM = {**NUMBER, "num-output-surfaces": (int, "surfaces", "surfaces", 0, 64, 0, GObject.ParamFlags.WRITABLE)}


class Nvdec0(Nvdec, Gst.Bin):
    __gtype_name__ = "TestNvdec0"
    __gproperties__ = NUMBER


class Nvdec1(Nvdec, Gst.Bin):
    __gtype_name__ = "TestNvdec1"
    __gproperties__ = ROOM
    number = 1


class Nvdec444(Nvdec, Gst.Bin):
    __gtype_name__ = "TestNvdec444"
    __gproperties__ = NUMBER
    format = "Y444"


class NvdecBroken(Nvdec, Gst.Bin):
    __gtype_name__ = "TestNvdecBroken"
    __gproperties__ = NUMBER
    broken = True


for _cls, _sink, _src in ((Upload, "video/x-raw", CUDA), (Rename, "video/x-raw", CUDA), (Download, CUDA, "video/x-raw")):
    describe_class(_cls, ("copy", "Filter/Video", "of the tests", "gstinfer"), _sink, _src)
for _cls in (Nvdec0, Nvdec1, Nvdec444, NvdecBroken):
    describe_class(_cls, ("NVDEC", *DECODER), "video/x-h264", f"{CUDA}; video/x-raw")


@contextmanager
def nvcodec(decoders: dict[str, type]) -> Iterator[None]:
    """GStreamer with these decoders and the two copies, for the time being."""
    names = {**decoders, "cudaupload": Upload, "cudadownload": Download}
    for name, cls in names.items():
        assert Gst.Element.register(None, name, Gst.Rank.PRIMARY if cls in decoders.values() else Gst.Rank.NONE, cls)
    try:
        yield
    finally:
        for name in names:
            Gst.Registry.get().remove_feature(Gst.ElementFactory.find(name))
            assert Gst.ElementFactory.find(name) is None
