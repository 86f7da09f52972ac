/* SPDX-License-Identifier: Apache-2.0
 *
 * nvtracker, nvdsosd and nvmsgconv as far as they read (and the tracker: write) a batch meta. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <string.h>
#include "nvds_reader.h"

#define MAX_BORDER 32
#define MAX_OFFSET 65535
#define MATCH_IOU 0.3f
#define MAX_AGE 30

/* nvdsosd */

static guint
check_border (GString * problems, const gchar * what, const NvOSD_RectParams * rect)
{
  if (!isfinite (rect->left + rect->top + rect->width + rect->height))
    json_problem (problems, "%s: a coordinate is not finite", what);
  if (rect->border_width <= MAX_BORDER)
    return 0;
  json_problem (problems, "%s: border_width %u is not within 0..%d", what, rect->border_width,
      MAX_BORDER);
  return 1;
}

static gboolean
color_ok (const NvOSD_ColorParams * c)
{
  const double *v = &c->red;
  for (guint i = 0; i < 4; i++)
    if (!(v[i] >= 0.0 && v[i] <= 1.0))
      return FALSE;
  return TRUE;
}

static void
check_text (GString * problems, const NvOSD_TextParams * text)
{
  if (!text->font_params.font_name || !text->font_params.font_size)
    json_problem (problems, "text \"%s\": no font", text->display_text);
  if (text->x_offset > MAX_OFFSET || text->y_offset > MAX_OFFSET)
    json_problem (problems, "text \"%s\": offset %u, %u wrapped around", text->display_text,
        text->x_offset, text->y_offset);
  if (!color_ok (&text->font_params.font_color))
    json_problem (problems, "text \"%s\": colour not within 0..1", text->display_text);
}

static void
check_mask (GString * problems, const NvOSD_MaskParams * mask)
{
  if (mask->size != mask->width * mask->height * sizeof (float))
    json_problem (problems, "mask: %u bytes for %u x %u floats", mask->size, mask->width,
        mask->height);
}

static guint
count_appended (NvDsBatchMeta * batch)
{
  guint n = 0;
  for (GList * l = batch->frame_meta_list; l; l = l->next)
    n += g_list_length (((NvDsFrameMeta *) l->data)->obj_meta_list);
  return n;
}

gchar *
nvds_reader_osd (NvDsBatchMeta * batch, gboolean * ok)
{
  GString *out = g_string_new ("{"), *problems = g_string_new ("[");
  guint rects = 0, texts = 0, masks = 0, lines = 0, circles = 0, rotated = 0, refused = 0;
  nvds_acquire_meta_lock (batch);
  for (GList * l = batch->obj_meta_pool->full_list; l; l = l->next) {
    const NvDsObjectMeta *obj = l->data;
    rects++;
    refused += check_border (problems, "object", &obj->rect_params);
    if (obj->rect_params.border_width && !color_ok (&obj->rect_params.border_color))
      json_problem (problems, "object: border colour not within 0..1");
#if NVDS_ROTATION
    rotated += obj->rect_params.rotation_angle != 0.0f;
#endif
    if (obj->mask_params.data && obj->mask_params.size > 0) {
      masks++;
      check_mask (problems, &obj->mask_params);
    }
    if (obj->text_params.display_text) {
      texts++;
      check_text (problems, &obj->text_params);
    }
  }
  for (GList * l = batch->display_meta_pool->full_list; l; l = l->next) {
    const NvDsDisplayMeta *display = l->data;
    const guint counts[] = { display->num_rects, display->num_labels, display->num_lines,
      display->num_arrows, display->num_circles
    };
    for (guint i = 0; i < G_N_ELEMENTS (counts); i++)
      if (counts[i] > MAX_ELEMENTS_IN_DISPLAY_META)
        json_problem (problems, "display meta: %u elements of one kind", counts[i]);
    for (guint i = 0; i < MIN (display->num_rects, MAX_ELEMENTS_IN_DISPLAY_META); i++)
      refused += check_border (problems, "display", &display->rect_params[i]);
    for (guint i = 0; i < MIN (display->num_labels, MAX_ELEMENTS_IN_DISPLAY_META); i++)
      if (display->text_params[i].display_text) {
        texts++;
        check_text (problems, &display->text_params[i]);
      }
    rects += display->num_rects;
    lines += display->num_lines;
    circles += display->num_circles;
  }
  json_string (out, "kind", "osd", -1);
  json_uint (out, "rects", rects);
  json_uint (out, "texts", texts);
  json_uint (out, "masks", masks);
  json_uint (out, "lines", lines);
  json_uint (out, "circles", circles);
  json_uint (out, "rotated", rotated);
  json_uint (out, "never_appended", batch->obj_meta_pool->num_full_elements -
      count_appended (batch));
  nvds_release_meta_lock (batch);
  g_string_append_printf (out, ", \"problems\": %s]}", problems->str);
  g_string_free (problems, TRUE);
  if (ok)
    *ok = refused == 0;
  return g_string_free (out, FALSE);
}

/* nvmsgconv: the minimal schema joins an object's fields with '|' */

static gboolean
msgconv_object (GString * out, GString * problems, const NvDsObjectMeta * obj)
{
  gsize length = strnlen (obj->obj_label, MAX_LABEL_SIZE);
  GString *line = g_string_new (NULL);
  guint fields = 6, found = 1;
  gboolean ok = TRUE;
  g_string_printf (line, "%" G_GUINT64_FORMAT "|%g|%g|%g|%g|", obj->object_id,
      obj->rect_params.left, obj->rect_params.top,
      obj->rect_params.left + obj->rect_params.width,
      obj->rect_params.top + obj->rect_params.height);
  g_string_append_len (line, obj->obj_label, length);
  for (GList * c = obj->classifier_meta_list; c; c = c->next)
    for (GList * l = ((NvDsClassifierMeta *) c->data)->label_info_list; l; l = l->next) {
      const NvDsLabelInfo *label = l->data;
      g_string_append_c (line, '|');
      g_string_append_len (line, label->result_label, strnlen (label->result_label,
              MAX_LABEL_SIZE));
      fields++;
    }
  for (gsize i = 0; i < line->len; i++)
    found += line->str[i] == '|';
  if (found != fields) {
    json_problem (problems, "%u fields where the label leaves %u", found, fields);
    ok = FALSE;
  }
  if (length == MAX_LABEL_SIZE) {
    json_problem (problems, "label without an end");
    ok = FALSE;
  }
  if (!g_utf8_validate (line->str, line->len, NULL)) {
    json_problem (problems, "label is not UTF-8");
    ok = FALSE;
  }
  json_string (out, NULL, line->str, line->len);
  g_string_free (line, TRUE);
  return ok;
}

gchar *
nvds_reader_msgconv (NvDsBatchMeta * batch, gboolean * ok)
{
  GString *out = g_string_new ("{"), *problems = g_string_new ("[");
  gboolean fine = TRUE;
  nvds_acquire_meta_lock (batch);
  json_string (out, "kind", "msgconv", -1);
  json_open (out, "frames", '[');
  for (GList * f = batch->frame_meta_list; f; f = f->next) {
    const NvDsFrameMeta *frame = f->data;
    json_open (out, NULL, '{');
    json_uint (out, "sensor", frame->source_id);
    json_int (out, "frame", frame->frame_num);
    json_open (out, "objects", '[');
    for (GList * l = frame->obj_meta_list; l; l = l->next)
      fine &= msgconv_object (out, problems, l->data);
    json_close (out, ']');
    json_close (out, '}');
  }
  json_close (out, ']');
  nvds_release_meta_lock (batch);
  g_string_append_printf (out, ", \"problems\": %s]}", problems->str);
  g_string_free (problems, TRUE);
  if (ok)
    *ok = fine;
  return g_string_free (out, FALSE);
}

/* nvtracker */

typedef struct
{
  guint64 id;
  gint class_id, component, age;
  NvBbox_Coords box;
  gchar label[MAX_LABEL_SIZE];
  gboolean seen;
} Track;

struct _NvdsReaderTracker
{
  GHashTable *streams;          /* pad_index -> GArray of Track */
  guint64 next_id;
};

NvdsReaderTracker *
nvds_reader_tracker_new (void)
{
  NvdsReaderTracker *self = g_new0 (NvdsReaderTracker, 1);
  self->streams = g_hash_table_new_full (NULL, NULL, NULL, (GDestroyNotify) g_array_unref);
  self->next_id = 1;
  return self;
}

void
nvds_reader_tracker_free (NvdsReaderTracker * self)
{
  g_hash_table_unref (self->streams);
  g_free (self);
}

void
nvds_reader_tracker_event (NvdsReaderTracker * self, GstEvent * event)
{
  guint number = (guint) GST_EVENT_TYPE (event) >> GST_EVENT_NUM_SHIFT, source;
  if ((number == 401 || number == 402 || number == 404)
      && gst_structure_get_uint (gst_event_get_structure (event), "source-id", &source))
    g_hash_table_remove (self->streams, GUINT_TO_POINTER (source));
}

static float
iou (const NvBbox_Coords * a, const NvOSD_RectParams * b)
{
  float w = MIN (a->left + a->width, b->left + b->width) - MAX (a->left, b->left);
  float h = MIN (a->top + a->height, b->top + b->height) - MAX (a->top, b->top);
  float both = w > 0 && h > 0 ? w * h : 0;
  float all = a->width * a->height + b->width * b->height - both;
  return all > 0 ? both / all : 0;
}

/* The tracker replaces the text it was given, so that text must come from g_malloc. */
static void
write_track (NvDsObjectMeta * obj, const Track * track)
{
  obj->object_id = track->id;
  obj->tracker_bbox_info.org_bbox_coords = track->box;
  g_free (obj->text_params.display_text);
  obj->text_params.display_text = g_strdup_printf ("%s %" G_GUINT64_FORMAT, track->label,
      track->id);
}

static Track *
match_track (NvdsReaderTracker * self, GArray * tracks, NvDsObjectMeta * obj)
{
  Track *best = NULL;
  float score = MATCH_IOU;
  for (guint i = 0; i < tracks->len; i++) {
    Track *track = &g_array_index (tracks, Track, i);
    float now = iou (&track->box, &obj->rect_params);
    if (!track->seen && track->class_id == obj->class_id && now > score) {
      best = track;
      score = now;
    }
  }
  if (!best) {
    Track fresh = { .id = self->next_id++, .class_id = obj->class_id,
      .component = obj->unique_component_id
    };
    g_strlcpy (fresh.label, obj->obj_label, sizeof fresh.label);
    g_array_append_val (tracks, fresh);
    best = &g_array_index (tracks, Track, tracks->len - 1);
  }
  best->box = (NvBbox_Coords) { obj->rect_params.left, obj->rect_params.top,
    obj->rect_params.width, obj->rect_params.height
  };
  best->seen = TRUE;
  best->age = 0;
  return best;
}

static void
predict (NvDsFrameMeta * frame, const Track * track)
{
  NvDsObjectMeta *obj = nvds_acquire_obj_meta_from_pool (frame->base_meta.batch_meta);
  memset (&obj->detector_bbox_info, 0, sizeof obj->detector_bbox_info);
  memset (&obj->rect_params, 0, sizeof obj->rect_params);
  memset (&obj->text_params, 0, sizeof obj->text_params);
  obj->unique_component_id = track->component;
  obj->class_id = track->class_id;
  obj->confidence = -0.1f;
  obj->rect_params.left = track->box.left;
  obj->rect_params.top = track->box.top;
  obj->rect_params.width = track->box.width;
  obj->rect_params.height = track->box.height;
  obj->rect_params.border_width = 3;
  obj->text_params.font_params.font_name = (char *) "Serif";
  obj->text_params.font_params.font_size = 11;
  g_strlcpy (obj->obj_label, track->label, sizeof obj->obj_label);
  write_track (obj, track);
  nvds_add_obj_meta_to_frame (frame, obj, NULL);
}

static void
track_frame (NvdsReaderTracker * self, NvDsFrameMeta * frame, GString * out)
{
  gpointer key = GUINT_TO_POINTER (frame->pad_index);
  GArray *tracks = g_hash_table_lookup (self->streams, key);
  guint already = 0, ignored = 0, predicted = 0, tracked = 0;
  GList *untracked = NULL;
  if (!tracks) {
    tracks = g_array_new (FALSE, TRUE, sizeof (Track));
    g_hash_table_insert (self->streams, key, tracks);
  }
  for (guint i = 0; i < tracks->len; i++)
    g_array_index (tracks, Track, i).seen = FALSE;
  for (GList * l = frame->obj_meta_list; l; l = l->next) {
    NvDsObjectMeta *obj = l->data;
    already += obj->object_id != UNTRACKED_OBJECT_ID;
    if (frame->bInferDone) {
      write_track (obj, match_track (self, tracks, obj));
      tracked++;
    } else if (obj->object_id == UNTRACKED_OBJECT_ID) {
      untracked = g_list_prepend (untracked, obj);
      ignored++;
    }
  }
  for (GList * l = untracked; l; l = l->next)
    nvds_remove_obj_meta_from_frame (frame, l->data);
  g_list_free (untracked);
  for (guint i = tracks->len; i-- > 0;) {
    Track *track = &g_array_index (tracks, Track, i);
    if (!track->seen && ++track->age > MAX_AGE) {
      g_array_remove_index (tracks, i);
    } else if (!frame->bInferDone) {
      predict (frame, track);
      predicted++;
    }
  }
  json_open (out, NULL, '{');
  json_uint (out, "pad_index", frame->pad_index);
  json_int (out, "frame", frame->frame_num);
  json_bool (out, "detection_done", frame->bInferDone);
  json_uint (out, "tracked", tracked);
  json_uint (out, "ignored", ignored);
  json_uint (out, "predicted", predicted);
  json_uint (out, "already_tracked", already);
  json_open (out, "ids", '[');
  for (GList * l = frame->obj_meta_list; l; l = l->next)
    json_uint (out, NULL, ((NvDsObjectMeta *) l->data)->object_id);
  json_close (out, ']');
  json_close (out, '}');
}

gchar *
nvds_reader_track (NvdsReaderTracker * self, NvDsBatchMeta * batch)
{
  GString *out = g_string_new ("{");
  json_string (out, "kind", "tracker", -1);
  json_open (out, "frames", '[');
  nvds_acquire_meta_lock (batch);
  for (GList * l = batch->frame_meta_list; l; l = l->next)
    track_frame (self, l->data, out);
  nvds_release_meta_lock (batch);
  json_close (out, ']');
  json_close (out, '}');
  return g_string_free (out, FALSE);
}
