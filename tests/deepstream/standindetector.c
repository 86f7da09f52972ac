/* SPDX-License-Identifier: Apache-2.0
 *
 * standindetector: a reference writer in nvinfer's place. Each frame gets `objects` boxes with every
 * field that nvinfer sets; properties break one rule each, to prove that the readers notice. */
#include "gststandin.h"
#include <gst/base/gstbasetransform.h>
#include "nvdsgst_meta.h"

enum { PROP_0, PROP_OBJECTS, PROP_INTERVAL, PROP_BORDER_WIDTH, PROP_LABEL, PROP_LOSE };

typedef struct
{
  GstBaseTransform transform;
  guint objects, interval, border_width, lose, seen;
  gchar *label;
} StandinDetector;

typedef struct { GstBaseTransformClass parent; } StandinDetectorClass;

GType standin_detector_get_type (void);
G_DEFINE_TYPE (StandinDetector, standin_detector, GST_TYPE_BASE_TRANSFORM)
#define SELF(object) ((StandinDetector *) (object))

static GstStaticPadTemplate sink_template = GST_STATIC_PAD_TEMPLATE ("sink", GST_PAD_SINK,
    GST_PAD_ALWAYS, GST_STATIC_CAPS ("video/x-raw(memory:NVMM)"));
static GstStaticPadTemplate src_template = GST_STATIC_PAD_TEMPLATE ("src", GST_PAD_SRC,
    GST_PAD_ALWAYS, GST_STATIC_CAPS ("video/x-raw(memory:NVMM)"));

static void
fill_object (StandinDetector * self, NvDsObjectMeta * obj, guint i)
{
  NvBbox_Coords box = { 4.0f + 6.0f * i, 2.0f, 5.0f, 7.0f };
  NvOSD_RectParams *rect = &obj->rect_params;
  NvOSD_TextParams *text = &obj->text_params;
  obj->unique_component_id = 15;
  obj->class_id = 0;
  obj->object_id = UNTRACKED_OBJECT_ID;
  obj->confidence = 0.75f;
  obj->detector_bbox_info.org_bbox_coords = box;
  *rect = (NvOSD_RectParams) { .left = box.left, .top = box.top, .width = box.width,
    .height = box.height, .border_width = self->border_width, .border_color = {1, 0, 0, 1}
  };
  g_strlcpy (obj->obj_label, self->label, MAX_LABEL_SIZE);
  *text = (NvOSD_TextParams) { .display_text = g_strdup (obj->obj_label),
    .x_offset = (guint) box.left, .y_offset = (guint) MAX (0.0f, box.top - 10.0f),
    .font_params = { (char *) "Serif", 11, {1, 1, 1, 1} },
    .set_bg_clr = 1, .text_bg_clr = {0, 0, 0, 1}
  };
}

static GstFlowReturn
transform_ip (GstBaseTransform * transform, GstBuffer * buffer)
{
  StandinDetector *self = SELF (transform);
  NvDsBatchMeta *batch = gst_buffer_get_nvds_batch_meta (buffer);
  if (!batch || self->seen++ % (self->interval + 1))
    return GST_FLOW_OK;
  nvds_acquire_meta_lock (batch);
  for (GList * l = batch->frame_meta_list; l; l = l->next) {
    NvDsFrameMeta *frame = l->data;
    frame->bInferDone = TRUE;
    for (guint i = 0; i < self->objects; i++) {
      NvDsObjectMeta *obj = nvds_acquire_obj_meta_from_pool (batch);
      fill_object (self, obj, i);
      nvds_add_obj_meta_to_frame (frame, obj, NULL);
    }
  }
  for (guint i = 0; i < self->lose; i++)
    fill_object (self, nvds_acquire_obj_meta_from_pool (batch), i);
  nvds_release_meta_lock (batch);
  return GST_FLOW_OK;
}

static guint *
field_of (StandinDetector * self, guint id)
{
  return id == PROP_OBJECTS ? &self->objects : id == PROP_INTERVAL ? &self->interval :
      id == PROP_LOSE ? &self->lose : &self->border_width;
}

static void
set_property (GObject * object, guint id, const GValue * value, GParamSpec * spec)
{
  StandinDetector *self = SELF (object);
  (void) spec;
  if (id == PROP_LABEL) {
    g_free (self->label);
    self->label = g_value_dup_string (value);
  } else {
    *field_of (self, id) = g_value_get_uint (value);
  }
}

static void
get_property (GObject * object, guint id, GValue * value, GParamSpec * spec)
{
  StandinDetector *self = SELF (object);
  (void) spec;
  if (id == PROP_LABEL)
    g_value_set_string (value, self->label);
  else
    g_value_set_uint (value, *field_of (self, id));
}

static void
finalize (GObject * object)
{
  g_free (SELF (object)->label);
  G_OBJECT_CLASS (standin_detector_parent_class)->finalize (object);
}

static void
standin_detector_init (StandinDetector * self)
{
  self->objects = 1;
  self->border_width = 3;
  self->label = g_strdup ("thing");
  gst_base_transform_set_in_place (GST_BASE_TRANSFORM (self), TRUE);
  gst_base_transform_set_passthrough (GST_BASE_TRANSFORM (self), TRUE);
}

static void
standin_detector_class_init (StandinDetectorClass * klass)
{
  GObjectClass *object = G_OBJECT_CLASS (klass);
  GstElementClass *element = GST_ELEMENT_CLASS (klass);
  const GParamFlags flags = G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS;
  object->set_property = set_property;
  object->get_property = get_property;
  object->finalize = finalize;
  GST_BASE_TRANSFORM_CLASS (klass)->transform_ip = transform_ip;
  g_object_class_install_property (object, PROP_OBJECTS, g_param_spec_uint ("objects", "objects",
          "Objects a frame", 0, G_MAXINT, 1, flags));
  g_object_class_install_property (object, PROP_INTERVAL, g_param_spec_uint ("interval",
          "interval", "Batches skipped after each one", 0, G_MAXINT, 0, flags));
  g_object_class_install_property (object, PROP_BORDER_WIDTH, g_param_spec_uint ("border-width",
          "border-width", "More than 32 is an error to the display", 0, G_MAXINT, 3, flags));
  g_object_class_install_property (object, PROP_LABEL, g_param_spec_string ("label", "label",
          "Label of each object", "thing", flags));
  g_object_class_install_property (object, PROP_LOSE, g_param_spec_uint ("lose", "lose",
          "Objects acquired and never appended", 0, G_MAXINT, 0, flags));
  gst_element_class_add_static_pad_template (element, &sink_template);
  gst_element_class_add_static_pad_template (element, &src_template);
  gst_element_class_set_static_metadata (element, "Stand-in detector", "Filter/Video",
      "Writes reference detections", "gstinfer tests");
}
