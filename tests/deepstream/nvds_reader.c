/* SPDX-License-Identifier: Apache-2.0
 *
 * The golden dump: every field of a batch meta, in the order of the lists. */
#define _POSIX_C_SOURCE 200809L
#include <string.h>
#include "nvds_reader.h"
#include "nvbuf_standin.h"

#define MASK_VALUES 4096

static GMutex payload_mutex;
static GHashTable *payload_kinds;       /* meta type -> kind */
static GHashTable *payload_names;       /* meta type -> descriptor */

void
nvds_reader_set_payload (const gchar * descriptor, gint kind)
{
  gpointer type = GINT_TO_POINTER (nvds_get_user_meta_type ((gchar *) descriptor));
  g_mutex_lock (&payload_mutex);
  if (!payload_kinds) {
    payload_kinds = g_hash_table_new (NULL, NULL);
    payload_names = g_hash_table_new_full (NULL, NULL, NULL, g_free);
  }
  g_hash_table_insert (payload_kinds, type, GINT_TO_POINTER (kind));
  g_hash_table_insert (payload_names, type, g_strdup (descriptor));
  g_mutex_unlock (&payload_mutex);
}

static void
dump_box (GString * out, const gchar * name, const NvBbox_Coords * box)
{
  json_open (out, name, '[');
  json_double (out, NULL, box->left);
  json_double (out, NULL, box->top);
  json_double (out, NULL, box->width);
  json_double (out, NULL, box->height);
  json_close (out, ']');
}

static void
dump_color (GString * out, const gchar * name, const NvOSD_ColorParams * color)
{
  json_open (out, name, '[');
  json_double (out, NULL, color->red);
  json_double (out, NULL, color->green);
  json_double (out, NULL, color->blue);
  json_double (out, NULL, color->alpha);
  json_close (out, ']');
}

static void
dump_rect (GString * out, const gchar * name, const NvOSD_RectParams * rect)
{
  json_open (out, name, '{');
  json_double (out, "left", rect->left);
  json_double (out, "top", rect->top);
  json_double (out, "width", rect->width);
  json_double (out, "height", rect->height);
  json_uint (out, "border_width", rect->border_width);
  dump_color (out, "border_color", &rect->border_color);
  json_uint (out, "has_bg_color", rect->has_bg_color);
  json_uint (out, "reserved", rect->reserved);
  dump_color (out, "bg_color", &rect->bg_color);
  json_int (out, "has_color_info", rect->has_color_info);
  json_int (out, "color_id", rect->color_id);
#if NVDS_ROTATION
  json_double (out, "rotation_angle", rect->rotation_angle);
#endif
  json_close (out, '}');
}

static void
dump_text (GString * out, const gchar * name, const NvOSD_TextParams * text)
{
  json_open (out, name, '{');
  json_string (out, "display_text", text->display_text, -1);
  json_uint (out, "x_offset", text->x_offset);
  json_uint (out, "y_offset", text->y_offset);
  json_string (out, "font_name", text->font_params.font_name, -1);
  json_uint (out, "font_size", text->font_params.font_size);
  dump_color (out, "font_color", &text->font_params.font_color);
  json_int (out, "set_bg_clr", text->set_bg_clr);
  dump_color (out, "text_bg_clr", &text->text_bg_clr);
  json_close (out, '}');
}

/* Values up to a limit, and a checksum over all bytes */
static void
dump_floats (GString * out, const float *values, gsize n)
{
  gchar *sum = g_compute_checksum_for_data (G_CHECKSUM_MD5, (const guchar *) values,
      n * sizeof *values);
  json_string (out, "md5", sum, -1);
  g_free (sum);
  json_open (out, "values", '[');
  for (gsize i = 0; i < n && n <= MASK_VALUES; i++)
    json_double (out, NULL, values[i]);
  json_close (out, ']');
}

static void
dump_mask (GString * out, const NvOSD_MaskParams * mask)
{
  json_open (out, "mask_params", '{');
  json_uint (out, "size", mask->size);
  json_double (out, "threshold", mask->threshold);
  json_uint (out, "width", mask->width);
  json_uint (out, "height", mask->height);
  json_bool (out, "data", mask->data != NULL);
  if (mask->data)
    dump_floats (out, mask->data, mask->size / sizeof (float));
  json_close (out, '}');
}

static void
dump_segmentation (GString * out, const NvDsInferSegmentationMeta * seg)
{
  gsize n = (gsize) seg->width * seg->height;
  gchar *sum;
  json_open (out, "segmentation", '{');
  json_uint (out, "classes", seg->classes);
  json_uint (out, "width", seg->width);
  json_uint (out, "height", seg->height);
  json_int (out, "unique_id", seg->unique_id);
  json_bool (out, "probabilities", seg->class_probabilities_map != NULL);
  if (seg->class_map) {
    sum = g_compute_checksum_for_data (G_CHECKSUM_MD5, (const guchar *) seg->class_map,
        n * sizeof (gint));
    json_string (out, "class_map_md5", sum, -1);
    g_free (sum);
    json_open (out, "class_map", '[');
    for (gsize i = 0; i < n && n <= MASK_VALUES; i++)
      json_int (out, NULL, seg->class_map[i]);
    json_close (out, ']');
  }
  if (seg->class_probabilities_map) {
    json_open (out, "class_probabilities_map", '{');
    dump_floats (out, seg->class_probabilities_map, n * seg->classes);
    json_close (out, '}');
  }
  json_close (out, '}');
}

static void
dump_tensors (GString * out, const NvDsInferTensorMeta * tensor)
{
  static const guint sizes[] = { 4, 2, 1, 4, 8, 1 };
  json_open (out, "tensor", '{');
  json_uint (out, "unique_id", tensor->unique_id);
  json_int (out, "gpu_id", tensor->gpu_id);
  json_uint (out, "network_width", tensor->network_info.width);
  json_uint (out, "network_height", tensor->network_info.height);
  json_uint (out, "network_channels", tensor->network_info.channels);
  json_bool (out, "maintain_aspect_ratio", tensor->maintain_aspect_ratio);
  json_bool (out, "symmetric_padding", tensor->symmetric_padding);
  json_open (out, "layers", '[');
  for (guint i = 0; i < tensor->num_output_layers; i++) {
    const NvDsInferLayerInfo *layer = &tensor->output_layers_info[i];
    const guchar *data = tensor->out_buf_ptrs_host ? tensor->out_buf_ptrs_host[i] : NULL;
    json_open (out, NULL, '{');
    json_string (out, "name", layer->layerName, -1);
    json_int (out, "data_type", layer->dataType);
    json_int (out, "binding", layer->bindingIndex);
    json_int (out, "is_input", layer->isInput);
    json_uint (out, "elements", layer->inferDims.numElements);
    json_open (out, "dims", '[');
    for (guint d = 0; d < layer->inferDims.numDims && d < NVDSINFER_MAX_DIMS; d++)
      json_uint (out, NULL, layer->inferDims.d[d]);
    json_close (out, ']');
    json_bool (out, "host", data != NULL);
    json_bool (out, "device", tensor->out_buf_ptrs_dev && tensor->out_buf_ptrs_dev[i]);
    if (data && layer->dataType >= 0 && layer->dataType < 6) {
      gchar *sum = g_compute_checksum_for_data (G_CHECKSUM_MD5, data,
          (gsize) layer->inferDims.numElements * sizes[layer->dataType]);
      json_string (out, "md5", sum, -1);
      g_free (sum);
      if (layer->dataType == 0) {
        json_open (out, "values", '[');
        for (guint v = 0; v < layer->inferDims.numElements && v < 16; v++)
          json_double (out, NULL, ((const float *) data)[v]);
        json_close (out, ']');
      }
    }
    json_close (out, '}');
  }
  json_close (out, ']');
  json_close (out, '}');
}

static void
dump_user (GString * out, const NvDsUserMeta * user)
{
  gint type = user->base_meta.meta_type, kind = PAYLOAD_OPAQUE;
  const gchar *name = NULL, *data = user->user_meta_data;
  g_mutex_lock (&payload_mutex);
  if (payload_kinds) {
    kind = GPOINTER_TO_INT (g_hash_table_lookup (payload_kinds, GINT_TO_POINTER (type)));
    name = g_hash_table_lookup (payload_names, GINT_TO_POINTER (type));
  }
  g_mutex_unlock (&payload_mutex);
  json_open (out, NULL, '{');
  /* a registered number depends on who asked first, so a named type goes by its name */
  if (name)
    json_string (out, "type", name, -1);
  else
    json_int (out, "type", type);
  json_bool (out, "data", data != NULL);
  json_bool (out, "copy_func", user->base_meta.copy_func != NULL);
  json_bool (out, "release_func", user->base_meta.release_func != NULL);
  if (data && type == NVDSINFER_SEGMENTATION_META)
    dump_segmentation (out, user->user_meta_data);
  else if (data && type == NVDSINFER_TENSOR_OUTPUT_META)
    dump_tensors (out, user->user_meta_data);
  else if (data && kind == PAYLOAD_CSTRING)
    json_string (out, "payload", data, -1);
  else if (data && kind == PAYLOAD_SIZE32)
    json_string (out, "payload", data + 4, *(const guint32 *) data);
  else if (data && kind == PAYLOAD_SIZE64)
    json_string (out, "payload", data + 8, *(const guint64 *) data);
  json_close (out, '}');
}

static void
dump_users (GString * out, const gchar * name, GList * list)
{
  json_open (out, name, '[');
  for (; list; list = list->next)
    dump_user (out, list->data);
  json_close (out, ']');
}

static void
dump_classifier (GString * out, const NvDsClassifierMeta * classifier)
{
  json_open (out, NULL, '{');
  json_int (out, "unique_component_id", classifier->unique_component_id);
  json_uint (out, "num_labels", classifier->num_labels);
  json_string (out, "classifier_type", classifier->classifier_type, -1);
  json_open (out, "labels", '[');
  for (GList * l = classifier->label_info_list; l; l = l->next) {
    const NvDsLabelInfo *label = l->data;
    json_open (out, NULL, '{');
    json_uint (out, "label_id", label->label_id);
    json_uint (out, "num_classes", label->num_classes);
    json_uint (out, "result_class_id", label->result_class_id);
    json_double (out, "result_prob", label->result_prob);
    json_string (out, "result_label", label->result_label,
        strnlen (label->result_label, MAX_LABEL_SIZE));
    json_string (out, "pResult_label", label->pResult_label, -1);
    json_close (out, '}');
  }
  json_close (out, ']');
  json_close (out, '}');
}

static void
dump_object (GString * out, NvDsFrameMeta * frame, const NvDsObjectMeta * obj)
{
  json_open (out, NULL, '{');
  json_int (out, "parent", obj->parent ? g_list_index (frame->obj_meta_list, obj->parent) : -1);
  json_bool (out, "has_parent", obj->parent != NULL);
  json_int (out, "unique_component_id", obj->unique_component_id);
  json_int (out, "class_id", obj->class_id);
  json_uint (out, "object_id", obj->object_id);
  json_double (out, "confidence", obj->confidence);
  json_double (out, "tracker_confidence", obj->tracker_confidence);
  dump_box (out, "detector_bbox", &obj->detector_bbox_info.org_bbox_coords);
  dump_box (out, "tracker_bbox", &obj->tracker_bbox_info.org_bbox_coords);
  dump_rect (out, "rect_params", &obj->rect_params);
  dump_mask (out, &obj->mask_params);
  dump_text (out, "text_params", &obj->text_params);
  json_string (out, "label", obj->obj_label, strnlen (obj->obj_label, MAX_LABEL_SIZE));
  json_bool (out, "label_terminated", memchr (obj->obj_label, 0, MAX_LABEL_SIZE) != NULL);
  json_open (out, "misc", '[');
  for (guint i = 0; i < MAX_USER_FIELDS; i++)
    json_int (out, NULL, obj->misc_obj_info[i]);
  json_close (out, ']');
  json_open (out, "classifiers", '[');
  for (GList * l = obj->classifier_meta_list; l; l = l->next)
    dump_classifier (out, l->data);
  json_close (out, ']');
  dump_users (out, "users", obj->obj_user_meta_list);
  json_close (out, '}');
}

#define EACH(count) for (guint i = 0; i < MIN (count, MAX_ELEMENTS_IN_DISPLAY_META); i++)

static void
dump_display (GString * out, const NvDsDisplayMeta * display)
{
  json_open (out, NULL, '{');
  json_open (out, "rects", '[');
  EACH (display->num_rects)
    dump_rect (out, NULL, &display->rect_params[i]);
  json_close (out, ']');
  json_open (out, "labels", '[');
  EACH (display->num_labels)
    dump_text (out, NULL, &display->text_params[i]);
  json_close (out, ']');
  json_open (out, "lines", '[');
  EACH (display->num_lines) {
    const NvOSD_LineParams *line = &display->line_params[i];
    json_open (out, NULL, '{');
    json_uint (out, "x1", line->x1);
    json_uint (out, "y1", line->y1);
    json_uint (out, "x2", line->x2);
    json_uint (out, "y2", line->y2);
    json_uint (out, "width", line->line_width);
    dump_color (out, "color", &line->line_color);
    json_close (out, '}');
  }
  json_close (out, ']');
  json_uint (out, "num_arrows", display->num_arrows);
  json_open (out, "circles", '[');
  EACH (display->num_circles) {
    const NvOSD_CircleParams *circle = &display->circle_params[i];
    json_open (out, NULL, '{');
    json_uint (out, "xc", circle->xc);
    json_uint (out, "yc", circle->yc);
    json_uint (out, "radius", circle->radius);
    dump_color (out, "color", &circle->circle_color);
    json_uint (out, "has_bg_color", circle->has_bg_color);
    dump_color (out, "bg_color", &circle->bg_color);
    json_uint (out, "width", circle->circle_width);
    json_close (out, '}');
  }
  json_close (out, ']');
  json_close (out, '}');
}

static void
dump_frame (GString * out, NvDsFrameMeta * frame)
{
  json_open (out, NULL, '{');
  json_uint (out, "pad_index", frame->pad_index);
  json_uint (out, "batch_id", frame->batch_id);
  json_int (out, "frame_num", frame->frame_num);
  json_uint (out, "buf_pts", frame->buf_pts);
  json_uint (out, "ntp_timestamp", frame->ntp_timestamp);
  json_uint (out, "source_id", frame->source_id);
  json_uint (out, "source_width", frame->source_frame_width);
  json_uint (out, "source_height", frame->source_frame_height);
  json_uint (out, "pipeline_width", frame->pipeline_width);
  json_uint (out, "pipeline_height", frame->pipeline_height);
  json_bool (out, "infer_done", frame->bInferDone);
  json_uint (out, "num_obj_meta", frame->num_obj_meta);
  json_open (out, "objects", '[');
  for (GList * l = frame->obj_meta_list; l; l = l->next)
    dump_object (out, frame, l->data);
  json_close (out, ']');
  json_open (out, "displays", '[');
  for (GList * l = frame->display_meta_list; l; l = l->next)
    dump_display (out, l->data);
  json_close (out, ']');
  dump_users (out, "users", frame->frame_user_meta_list);
  json_close (out, '}');
}

static void
dump_batch (GString * out, NvDsBatchMeta * batch)
{
  nvds_acquire_meta_lock (batch);
  json_open (out, "batch", '{');
  json_uint (out, "max_frames", batch->max_frames_in_batch);
  json_uint (out, "num_frames", batch->num_frames_in_batch);
  json_uint (out, "objects_in_pool", batch->obj_meta_pool->num_full_elements);
  json_open (out, "frames", '[');
  for (GList * l = batch->frame_meta_list; l; l = l->next)
    dump_frame (out, l->data);
  json_close (out, ']');
  dump_users (out, "users", batch->batch_user_meta_list);
  json_close (out, '}');
  nvds_release_meta_lock (batch);
}

static void
dump_surface (GString * out, const NvBufSurface * surf)
{
  json_open (out, "surface", '{');
  json_uint (out, "gpu_id", surf->gpuId);
  json_uint (out, "batch_size", surf->batchSize);
  json_uint (out, "num_filled", surf->numFilled);
  json_int (out, "mem_type", surf->memType);
  json_open (out, "frames", '[');
  for (guint i = 0; i < surf->numFilled; i++) {
    const NvBufSurfaceParams *p = &surf->surfaceList[i];
    json_open (out, NULL, '{');
    json_uint (out, "width", p->width);
    json_uint (out, "height", p->height);
    json_uint (out, "pitch", p->pitch);
    json_int (out, "color_format", p->colorFormat);
    json_uint (out, "data_size", p->dataSize);
    json_bool (out, "data", p->dataPtr != NULL);
    json_uint (out, "planes", p->planeParams.num_planes);
    json_close (out, '}');
  }
  json_close (out, ']');
  json_close (out, '}');
}

gchar *
nvds_reader_dump_batch (NvDsBatchMeta * batch)
{
  GString *out = g_string_new ("{");
  dump_batch (out, batch);
  json_close (out, '}');
  return g_string_free (out, FALSE);
}

gchar *
nvds_reader_dump (GstBuffer * buffer)
{
  NvDsBatchMeta *batch = gst_buffer_get_nvds_batch_meta (buffer);
  GString *out = g_string_new ("{");
  GstMapInfo map;
  json_string (out, "kind", "dump", -1);
  json_uint (out, "pts", GST_BUFFER_PTS (buffer));
  if (gst_buffer_map (buffer, &map, GST_MAP_READ)) {
    if (map.size == sizeof (NvBufSurface))
      dump_surface (out, (const NvBufSurface *) map.data);
    gst_buffer_unmap (buffer, &map);
  }
  if (batch)
    dump_batch (out, batch);
  json_close (out, '}');
  return g_string_free (out, FALSE);
}
