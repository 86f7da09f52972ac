/* SPDX-License-Identifier: Apache-2.0
 *
 * standinmux: makes batches from plain raw video, in nvstreammux's place. One NvBufSurface a batch,
 * one frame meta a frame, and the custom events of a multiplexer. Formats are not converted. */
#include "gststandin.h"
#include <gst/base/gstcollectpads.h>
#include <gst/video/video.h>
#include <string.h>
#include "nvbuf_standin.h"
#include "nvdsgst_meta.h"

#define FORMATS "{ NV12, RGBA, RGB, BGR, BGRx, GRAY8, I420 }"
#define NTP_EPOCH G_GUINT64_CONSTANT (1700000000000000000)

enum { MODE_LEGACY, MODE_NEW };
enum { FAULT_NONE, FAULT_NO_META, FAULT_SYSTEM_MEMORY, FAULT_SHORT_LIST, FAULT_EMPTY };

typedef struct
{
  GstCollectData data;
  guint index;
  gint frame_num;
  gboolean have_info, ended, segment_sent;
  GstVideoInfo info;
} MuxPad;

typedef struct { GstBuffer *buffer; MuxPad *pad; } Frame;

typedef struct
{
  GstElement element;
  GstPad *src;
  GstCollectPads *collect;
  GArray *pending;
  guint next_pad, rounds;
  gboolean started;
  guint batch_size, fill, width, height, frames_per_source, gpu_id, color_format, source_id_offset;
  gint mode, mem_type, fault;
} StandinMux;

typedef struct { GstElementClass parent; } StandinMuxClass;

enum
{
  PROP_0, PROP_BATCH_SIZE, PROP_FILL, PROP_WIDTH, PROP_HEIGHT, PROP_FRAMES_PER_SOURCE, PROP_GPU_ID,
  PROP_COLOR_FORMAT, PROP_SOURCE_ID_OFFSET, PROP_MODE, PROP_MEM_TYPE, PROP_FAULT
};

GType standin_mux_get_type (void);
G_DEFINE_TYPE (StandinMux, standin_mux, GST_TYPE_ELEMENT)
#define SELF(object) ((StandinMux *) (object))

static GstStaticPadTemplate sink_template = GST_STATIC_PAD_TEMPLATE ("sink_%u", GST_PAD_SINK,
    GST_PAD_REQUEST, GST_STATIC_CAPS ("video/x-raw, format = " FORMATS));
static GstStaticPadTemplate src_template = GST_STATIC_PAD_TEMPLATE ("src", GST_PAD_SRC,
    GST_PAD_ALWAYS, GST_STATIC_CAPS ("video/x-raw(memory:NVMM), format = " FORMATS));

static GType
register_enum (const gchar * name, const GEnumValue * values)
{
  GType type = g_type_from_name (name);
  return type ? type : g_enum_register_static (name, values);
}

/* Custom events: the number above the flag bits is what a reader compares */

static void
push_custom (StandinMux * self, guint number, const gchar * name, guint source, GstSegment * segment)
{
  GstEventType type = GST_EVENT_MAKE_TYPE (number, GST_EVENT_TYPE_DOWNSTREAM |
      GST_EVENT_TYPE_SERIALIZED | GST_EVENT_TYPE_STICKY | GST_EVENT_TYPE_STICKY_MULTI);
  GstStructure *s = gst_structure_new (name, "source-id", G_TYPE_UINT, source, NULL);
  if (segment)
    gst_structure_set (s, "segment", GST_TYPE_SEGMENT, segment, NULL);
  gst_pad_push_event (self->src, gst_event_new_custom (type, s));
}

#define PUSH_PAD_ADDED(self, id) push_custom (self, 400, "nv-pad-added", id, NULL)
#define PUSH_PAD_DELETED(self, id) push_custom (self, 401, "nv-pad-deleted", id, NULL)
#define PUSH_STREAM_EOS(self, id) push_custom (self, 402, "nv-stream-eos", id, NULL)
#define PUSH_STREAM_SEGMENT(self, id, s) push_custom (self, 403, "nv-stream-segment", id, s)
#define PUSH_STREAM_RESET(self, id) push_custom (self, 404, "nv-stream-reset", id, NULL)

static guint
source_of (StandinMux * self, const MuxPad * pad)
{
  return pad->index + self->source_id_offset;
}

static NvBufSurfaceColorFormat
color_format_of (StandinMux * self, const GstVideoInfo * info)
{
  if (self->color_format)
    return self->color_format;
  switch (GST_VIDEO_INFO_FORMAT (info)) {
    case GST_VIDEO_FORMAT_RGBA:
      return NVBUF_COLOR_FORMAT_RGBA;
    case GST_VIDEO_FORMAT_RGB:
      return NVBUF_COLOR_FORMAT_RGB;
    case GST_VIDEO_FORMAT_BGR:
      return NVBUF_COLOR_FORMAT_BGR;
    case GST_VIDEO_FORMAT_BGRx:
      return NVBUF_COLOR_FORMAT_BGRx;
    case GST_VIDEO_FORMAT_GRAY8:
      return NVBUF_COLOR_FORMAT_GRAY8;
    case GST_VIDEO_FORMAT_I420:
      return NVBUF_COLOR_FORMAT_YUV420;
    default:
      break;
  }
  if (info->colorimetry.range == GST_VIDEO_COLOR_RANGE_0_255)
    return info->colorimetry.matrix == GST_VIDEO_COLOR_MATRIX_BT709 ?
        NVBUF_COLOR_FORMAT_NV12_709_ER : NVBUF_COLOR_FORMAT_NV12_ER;
  return info->colorimetry.matrix == GST_VIDEO_COLOR_MATRIX_BT709 ?
      NVBUF_COLOR_FORMAT_NV12_709 : NVBUF_COLOR_FORMAT_NV12;
}

/* Nearest neighbour where the sizes differ, row by row where they agree */
static void
fill_frame (const NvBufSurface * surf, guint index, const GstVideoFrame * from)
{
  const NvBufSurfacePlaneParams *p = &surf->surfaceList[index].planeParams;
  guint8 *host = nvbuf_standin_host (surf, index);
  if (!host)
    return;
  /* color-format may name a format of more planes than the frame has */
  const guint planes = MIN (p->num_planes, GST_VIDEO_FRAME_N_PLANES (from));
  for (guint plane = 0; plane < planes; plane++) {
    const guint8 *in = GST_VIDEO_FRAME_PLANE_DATA (from, plane);
    gint stride = GST_VIDEO_FRAME_PLANE_STRIDE (from, plane);
    guint in_w = GST_VIDEO_FRAME_COMP_WIDTH (from, plane);
    guint in_h = GST_VIDEO_FRAME_COMP_HEIGHT (from, plane);
    guint bytes = p->bytesPerPix[plane], w = p->width[plane], h = p->height[plane];
    for (guint y = 0; y < h; y++) {
      guint8 *row = host + p->offset[plane] + (gsize) y * p->pitch[plane];
      const guint8 *in_row = in + (gsize) (y * in_h / h) * stride;
      if (in_w == w)
        memcpy (row, in_row, (gsize) w * bytes);
      else
        for (guint x = 0; x < w; x++)
          memcpy (row + x * bytes, in_row + (x * in_w / w) * bytes, bytes);
    }
  }
}

static void
destroy_surface (gpointer surf)
{
  NvBufSurfaceDestroy (surf);
}

static GstBuffer *
wrap_surface (NvBufSurface * surf)
{
  return gst_buffer_new_wrapped_full (0, surf, sizeof *surf, 0, sizeof *surf, surf,
      destroy_surface);
}

static void
add_frame_meta (StandinMux * self, NvDsBatchMeta * batch, const Frame * in, guint batch_id)
{
  NvDsFrameMeta *frame = nvds_acquire_frame_meta_from_pool (batch);
  frame->pad_index = in->pad->index;
  frame->batch_id = batch_id;
  frame->frame_num = in->pad->frame_num++;
  frame->buf_pts = GST_BUFFER_PTS (in->buffer);
  frame->ntp_timestamp = NTP_EPOCH + GST_BUFFER_PTS (in->buffer);
  frame->source_id = source_of (self, in->pad);
  frame->num_surfaces_per_frame = 1;
  frame->source_frame_width = GST_VIDEO_INFO_WIDTH (&in->pad->info);
  frame->source_frame_height = GST_VIDEO_INFO_HEIGHT (&in->pad->info);
  if (self->mode == MODE_LEGACY) {
    frame->pipeline_width = self->width ? self->width : frame->source_frame_width;
    frame->pipeline_height = self->height ? self->height : frame->source_frame_height;
  }
  nvds_add_frame_meta_to_batch (batch, frame);
}

static GstBuffer *
make_batch (StandinMux * self)
{
  guint n = self->pending->len, slots = MAX (self->batch_size, n);
  guint filled = self->fault == FAULT_EMPTY ? 0 : n;
  NvBufSurface *surf;
  NvDsBatchMeta *batch = nvds_create_batch_meta (self->batch_size);
  GstBuffer *buffer;
  NvDsMeta *meta;
  if (self->fault == FAULT_SHORT_LIST)
    slots = n - 1;
  surf = nvbuf_standin_alloc (slots, self->mem_type, self->gpu_id);
  nvds_acquire_meta_lock (batch);
  for (guint i = 0; i < filled; i++) {
    Frame *in = &g_array_index (self->pending, Frame, i);
    const GstVideoInfo *info = &in->pad->info;
    guint width = GST_VIDEO_INFO_WIDTH (info), height = GST_VIDEO_INFO_HEIGHT (info);
    GstVideoFrame view;
    if (self->mode == MODE_LEGACY && self->width && self->height)
      width = self->width, height = self->height;
    if (!nvbuf_standin_alloc_frame (surf, i, width, height, color_format_of (self, info))) {
      surf->numFilled++;
      if (gst_video_frame_map (&view, (GstVideoInfo *) info, in->buffer, GST_MAP_READ)) {
        fill_frame (surf, i, &view);
        gst_video_frame_unmap (&view);
      }
    }
    add_frame_meta (self, batch, in, i);
  }
  nvds_release_meta_lock (batch);
  if (self->fault == FAULT_SYSTEM_MEMORY) {
    NvBufSurfaceDestroy (surf);
    buffer = gst_buffer_ref (g_array_index (self->pending, Frame, 0).buffer);
    buffer = gst_buffer_make_writable (buffer);
  } else {
    buffer = wrap_surface (surf);
  }
  gst_buffer_copy_into (buffer, g_array_index (self->pending, Frame, 0).buffer,
      GST_BUFFER_COPY_TIMESTAMPS, 0, -1);
  if (self->fault == FAULT_NO_META) {
    nvds_destroy_batch_meta (batch);
    return buffer;
  }
  meta = gst_buffer_add_nvds_meta (buffer, batch, NULL, nvds_batch_meta_copy_func,
      nvds_batch_meta_release_func);
  meta->meta_type = NVDS_BATCH_GST_META;
  return buffer;
}

static gboolean
start_stream (StandinMux * self, const MuxPad * first)
{
  const GstVideoInfo *info = &first->info;
  gchar *id = g_strdup_printf ("standin-%s", GST_OBJECT_NAME (self));
  gboolean scaled = self->mode == MODE_LEGACY && self->width && self->height;
  GstSegment segment;
  GstCaps *caps = gst_caps_new_simple ("video/x-raw",
      "format", G_TYPE_STRING, gst_video_format_to_string (GST_VIDEO_INFO_FORMAT (info)),
      "width", G_TYPE_INT, scaled ? (gint) self->width : GST_VIDEO_INFO_WIDTH (info),
      "height", G_TYPE_INT, scaled ? (gint) self->height : GST_VIDEO_INFO_HEIGHT (info),
      "framerate", GST_TYPE_FRACTION, GST_VIDEO_INFO_FPS_N (info), GST_VIDEO_INFO_FPS_D (info),
      "batch-size", G_TYPE_INT, (gint) self->batch_size,
      "num-surfaces-per-frame", G_TYPE_INT, 1, NULL);
  gboolean ok;
  gst_caps_set_features (caps, 0, gst_caps_features_new ("memory:NVMM", NULL));
  gst_pad_push_event (self->src, gst_event_new_stream_start (id));
  g_free (id);
  ok = gst_pad_push_event (self->src, gst_event_new_caps (caps));
  gst_caps_unref (caps);
  if (!ok) {
    GST_ELEMENT_ERROR (self, CORE, NEGOTIATION, ("standinmux: caps refused downstream"), (NULL));
    return FALSE;
  }
  gst_segment_init (&segment, GST_FORMAT_TIME);
  gst_pad_push_event (self->src, gst_event_new_segment (&segment));
  for (GSList * l = self->collect->data; l; l = l->next)
    PUSH_PAD_ADDED (self, source_of (self, l->data));
  self->started = TRUE;
  return TRUE;
}

static void
drop_pending (StandinMux * self)
{
  for (guint i = 0; i < self->pending->len; i++)
    gst_buffer_unref (g_array_index (self->pending, Frame, i).buffer);
  g_array_set_size (self->pending, 0);
}

static GstFlowReturn
push_pending (StandinMux * self)
{
  GstBuffer *buffer;
  self->rounds = 0;
  if (!self->pending->len)
    return GST_FLOW_OK;
  if (!self->started && !start_stream (self, g_array_index (self->pending, Frame, 0).pad))
    return GST_FLOW_NOT_NEGOTIATED;
  for (guint i = 0; i < self->pending->len; i++) {
    MuxPad *pad = g_array_index (self->pending, Frame, i).pad;
    if (!pad->segment_sent)
      PUSH_STREAM_SEGMENT (self, source_of (self, pad), &pad->data.segment);
    pad->segment_sent = TRUE;
  }
  buffer = make_batch (self);
  drop_pending (self);
  return gst_pad_push (self->src, buffer);
}

static GstFlowReturn
collected (GstCollectPads * collect, gpointer data)
{
  StandinMux *self = data;
  guint limit = self->fill ? self->fill : self->batch_size;
  gboolean any = FALSE, ended = FALSE;
  GstFlowReturn flow = GST_FLOW_OK;
  for (GSList * l = collect->data; l && flow == GST_FLOW_OK; l = l->next) {
    MuxPad *pad = l->data;
    Frame frame = { gst_collect_pads_pop (collect, &pad->data), pad };
    if (!frame.buffer) {
      ended |= !pad->ended;
      continue;
    }
    any = TRUE;
    if (!pad->have_info) {
      gst_buffer_unref (frame.buffer);
      return GST_FLOW_NOT_NEGOTIATED;
    }
    g_array_append_val (self->pending, frame);
    if (self->pending->len >= limit)
      flow = push_pending (self);
  }
  if (flow == GST_FLOW_OK && (++self->rounds >= self->frames_per_source || ended || !any))
    flow = push_pending (self);
  for (GSList * l = collect->data; l && ended; l = l->next) {
    MuxPad *pad = l->data;
    if (!pad->ended && GST_COLLECT_PADS_STATE_IS_SET (&pad->data, GST_COLLECT_PADS_STATE_EOS)) {
      pad->ended = TRUE;
      if (self->started)
        PUSH_STREAM_EOS (self, source_of (self, pad));
    }
  }
  if (flow == GST_FLOW_OK && !any) {
    gst_pad_push_event (self->src, gst_event_new_eos ());
    return GST_FLOW_EOS;
  }
  return flow;
}

static gboolean
sink_event (GstCollectPads * collect, GstCollectData * data, GstEvent * event, gpointer user_data)
{
  StandinMux *self = user_data;
  MuxPad *pad = (MuxPad *) data;
  gboolean discard = TRUE;
  GstCaps *caps;
  switch (GST_EVENT_TYPE (event)) {
    case GST_EVENT_CAPS:
      gst_event_parse_caps (event, &caps);
      pad->have_info = gst_video_info_from_caps (&pad->info, caps);
      break;
    case GST_EVENT_FLUSH_START:
      discard = FALSE;
      break;
    case GST_EVENT_FLUSH_STOP:
      discard = FALSE;
      pad->ended = pad->segment_sent = FALSE;
      break;
    default:
      break;
  }
  if (GST_EVENT_TYPE (event) == GST_EVENT_FLUSH_STOP) {
    gboolean ok = gst_collect_pads_event_default (collect, data, event, discard);
    if (self->started)
      PUSH_STREAM_RESET (self, source_of (self, pad));
    return ok;
  }
  return gst_collect_pads_event_default (collect, data, event, discard);
}

/* Input formats are those the next element takes: nothing is converted here. */
static GstCaps *
input_caps (StandinMux * self)
{
  GstCaps *all = gst_static_pad_template_get_caps (&sink_template);
  GstCaps *out = gst_pad_get_allowed_caps (self->src);
  GstCaps *caps;
  if (!out)
    return all;
  caps = gst_caps_new_empty ();
  for (guint i = 0; i < gst_caps_get_size (out); i++) {
    const GValue *format = gst_structure_get_value (gst_caps_get_structure (out, i), "format");
    GstStructure *s = gst_structure_new_empty ("video/x-raw");
    if (format)
      gst_structure_set_value (s, "format", format);
    gst_caps_append_structure (caps, s);
  }
  gst_caps_unref (out);
  out = gst_caps_intersect (all, caps);
  gst_caps_unref (all);
  gst_caps_unref (caps);
  return out;
}

static gboolean
sink_query (GstCollectPads * collect, GstCollectData * data, GstQuery * query, gpointer user_data)
{
  GstCaps *filter, *caps, *result;
  if (GST_QUERY_TYPE (query) != GST_QUERY_CAPS)
    return gst_collect_pads_query_default (collect, data, query, FALSE);
  gst_query_parse_caps (query, &filter);
  caps = input_caps (user_data);
  result = filter ? gst_caps_intersect_full (filter, caps, GST_CAPS_INTERSECT_FIRST) :
      gst_caps_ref (caps);
  gst_query_set_caps_result (query, result);
  gst_caps_unref (result);
  gst_caps_unref (caps);
  return TRUE;
}

static GstPad *
request_pad (GstElement * element, GstPadTemplate * template, const gchar * name,
    const GstCaps * caps)
{
  StandinMux *self = SELF (element);
  guint index = self->next_pad;
  gchar *own;
  GstPad *pad;
  MuxPad *data;
  (void) caps;
  if (name && sscanf (name, "sink_%u", &index) != 1)
    return NULL;
  self->next_pad = MAX (self->next_pad, index + 1);
  own = g_strdup_printf ("sink_%u", index);
  pad = gst_pad_new_from_template (template, own);
  g_free (own);
  data = (MuxPad *) gst_collect_pads_add_pad (self->collect, pad, sizeof (MuxPad), NULL, TRUE);
  data->index = index;
  data->frame_num = 0;
  data->have_info = data->ended = data->segment_sent = FALSE;
  gst_element_add_pad (element, pad);
  if (self->started)
    PUSH_PAD_ADDED (self, source_of (self, data));
  return pad;
}

static void
release_pad (GstElement * element, GstPad * pad)
{
  StandinMux *self = SELF (element);
  guint index = 0;
  if (sscanf (GST_PAD_NAME (pad), "sink_%u", &index) == 1 && self->started)
    PUSH_PAD_DELETED (self, index + self->source_id_offset);
  gst_collect_pads_remove_pad (self->collect, pad);
  gst_element_remove_pad (element, pad);
}

static GstStateChangeReturn
change_state (GstElement * element, GstStateChange transition)
{
  StandinMux *self = SELF (element);
  GstStateChangeReturn ret;
  if (transition == GST_STATE_CHANGE_READY_TO_PAUSED) {
    self->started = FALSE;
    self->rounds = 0;
    gst_collect_pads_start (self->collect);
  } else if (transition == GST_STATE_CHANGE_PAUSED_TO_READY) {
    gst_collect_pads_stop (self->collect);
  }
  ret = GST_ELEMENT_CLASS (standin_mux_parent_class)->change_state (element, transition);
  if (transition == GST_STATE_CHANGE_PAUSED_TO_READY)
    drop_pending (self);
  return ret;
}

#include "standinmux_properties.h"
