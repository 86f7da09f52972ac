// SPDX-License-Identifier: Apache-2.0
//
// The writing half of pyservicemaker's surface as a compiled module, with the same binding library as
// the published one: the honest other side of a cost comparison.
#include <pybind11/pybind11.h>

#include <cstring>
#include <memory>
#include <string>

#include "nvdsgst_meta.h"

namespace py = pybind11;

namespace {

template <typename T> struct Handle {
  T *meta = nullptr;
};

using Object = Handle<NvDsObjectMeta>;
using Frame = Handle<NvDsFrameMeta>;
using Batch = Handle<NvDsBatchMeta>;

class Buffer {
public:
  explicit Buffer(py::object wrapped)
      : buffer_(reinterpret_cast<GstBuffer *>(py::hash(wrapped))) {
    gst_buffer_ref(buffer_);
  }
  explicit Buffer(std::size_t pointer) : buffer_(reinterpret_cast<GstBuffer *>(pointer)) {
    gst_buffer_ref(buffer_);
  }
  Buffer(const Buffer &) = delete;
  ~Buffer() { gst_buffer_unref(buffer_); }
  Batch batch() const { return {gst_buffer_get_nvds_batch_meta(buffer_)}; }

private:
  GstBuffer *buffer_;
};

// One object for the whole loop, as the published iterators have it
class FrameIterator {
public:
  explicit FrameIterator(GList *list) : next_(list), item_(std::make_shared<Frame>()) {}
  std::shared_ptr<Frame> next() {
    item_->meta = next_ ? static_cast<NvDsFrameMeta *>(next_->data) : nullptr;
    if (!next_)
      throw py::stop_iteration();
    next_ = next_->next;
    return item_;
  }

private:
  GList *next_;
  std::shared_ptr<Frame> item_;
};

enum class FontFamily { Serif };

void set_label(Object &self, const std::string &text) {
  std::string cut = text.substr(0, MAX_LABEL_SIZE - 1);
  std::strcpy(self.meta->obj_label, cut.c_str());
}

void set_text(NvOSD_TextParams &self, const std::string &text) {
  g_free(self.display_text);
  self.display_text = g_strdup(text.c_str());
}

void bind_drawing(py::module_ &m) {
  py::module_ osd = m.def_submodule("osd");
  py::enum_<FontFamily>(osd, "FontFamily", py::module_local()).value("Serif", FontFamily::Serif);
  py::class_<NvOSD_ColorParams>(osd, "Color", py::module_local())
      .def(py::init([](double r, double g, double b, double a) {
        return NvOSD_ColorParams{r, g, b, a};
      }))
      .def_readwrite("r", &NvOSD_ColorParams::red)
      .def_readwrite("g", &NvOSD_ColorParams::green)
      .def_readwrite("b", &NvOSD_ColorParams::blue)
      .def_readwrite("a", &NvOSD_ColorParams::alpha);
  py::class_<NvOSD_FontParams>(osd, "Font", py::module_local())
      .def_property(
          "name", [](const NvOSD_FontParams &self) { return py::str(self.font_name); },
          [](NvOSD_FontParams &self, FontFamily) { self.font_name = const_cast<char *>("Serif"); })
      .def_readwrite("size", &NvOSD_FontParams::font_size)
      .def_readwrite("color", &NvOSD_FontParams::font_color);
  py::class_<NvOSD_TextParams>(osd, "TextParams", py::module_local())
      .def_property(
          "display_text",
          [](const NvOSD_TextParams &self) {
            return py::str(self.display_text ? self.display_text : "");
          },
          set_text)
      .def_readwrite("x_offset", &NvOSD_TextParams::x_offset)
      .def_readwrite("y_offset", &NvOSD_TextParams::y_offset)
      .def_readwrite("font_params", &NvOSD_TextParams::font_params)
      .def_readwrite("set_bg_clr", &NvOSD_TextParams::set_bg_clr)
      .def_readwrite("text_bg_clr", &NvOSD_TextParams::text_bg_clr);
  py::class_<NvOSD_RectParams> rect(osd, "Rect", py::module_local());
  rect.def_readwrite("left", &NvOSD_RectParams::left)
      .def_readwrite("top", &NvOSD_RectParams::top)
      .def_readwrite("width", &NvOSD_RectParams::width)
      .def_readwrite("height", &NvOSD_RectParams::height)
      .def_readwrite("border_width", &NvOSD_RectParams::border_width)
      .def_readwrite("border_color", &NvOSD_RectParams::border_color)
      .def_readwrite("has_bg_color", &NvOSD_RectParams::has_bg_color)
      .def_readwrite("bg_color", &NvOSD_RectParams::bg_color);
#if NVDS_ROTATION
  rect.def_readwrite("rotation_angle", &NvOSD_RectParams::rotation_angle);
#endif
}

#define FIELD(name)                                                                               \
  [](const Object &self) { return self.meta->name; },                                             \
      [](Object &self, decltype(NvDsObjectMeta::name) value) { self.meta->name = value; }
#define STRUCT(name, Type)                                                                        \
  [](Object &self) -> Type & { return self.meta->name; },                                         \
      [](Object &self, const Type &value) { self.meta->name = value; },                           \
      py::return_value_policy::reference_internal

void bind_metadata(py::module_ &m) {
  py::class_<Object>(m, "ObjectMetadata", py::module_local())
      .def_property("class_id", FIELD(class_id))
      .def_property("object_id", FIELD(object_id))
      .def_property("unique_component_id", FIELD(unique_component_id))
      .def_property("confidence", FIELD(confidence))
      .def_property("tracker_confidence", FIELD(tracker_confidence))
      .def_property("rect_params", STRUCT(rect_params, NvOSD_RectParams))
      .def_property("text_params", STRUCT(text_params, NvOSD_TextParams))
      .def_property(
          "label", [](const Object &self) { return std::string(self.meta->obj_label); }, set_label);
  py::class_<Frame, std::shared_ptr<Frame>>(m, "FrameMetadata", py::module_local())
      .def_property_readonly("batch_id", [](const Frame &self) { return self.meta->batch_id; })
      .def_property_readonly("source_id", [](const Frame &self) { return self.meta->source_id; })
      .def_property_readonly("pad_index", [](const Frame &self) { return self.meta->pad_index; })
      .def("append", [](Frame &self, py::object item) {
        if (!py::isinstance<Object>(item))
          throw py::type_error("Invalid type for FrameMetadata.append");
        nvds_add_obj_meta_to_frame(self.meta, item.cast<Object &>().meta, nullptr);
      });
  py::class_<FrameIterator>(m, "FrameIterator", py::module_local())
      .def("__iter__", [](py::object self) { return self; })
      .def("__next__", &FrameIterator::next);
  py::class_<Batch>(m, "BatchMetadata", py::module_local())
      .def_property_readonly(
          "n_frames", [](const Batch &self) { return self.meta ? self.meta->num_frames_in_batch : 0; })
      .def_property_readonly(
          "frame_items", [](const Batch &self) { return FrameIterator(self.meta->frame_meta_list); })
      .def("acquire_object_meta",
           [](Batch &self) { return Object{nvds_acquire_obj_meta_from_pool(self.meta)}; });
  py::class_<Buffer>(m, "Buffer", py::module_local())
      .def(py::init<std::size_t>())
      .def(py::init<py::object>())
      .def_property_readonly("batch_meta", &Buffer::batch);
}

}  // namespace

PYBIND11_MODULE(pyservicemaker_native, m) {
  bind_drawing(m);
  bind_metadata(m);
}
