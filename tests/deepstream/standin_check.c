/* SPDX-License-Identifier: Apache-2.0
 *
 * Exercises the stand-in from C, for valgrind and ASan: ends with 0 when all held. The first argument
 * is the number of batches. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "nvbuf_standin.h"
#include "nvds_reader.h"

static int failures;

#define CHECK(what) \
  do { if (!(what)) { failures++; fprintf (stderr, "line %d: %s\n", __LINE__, #what); } } while (0)

static gpointer
copy_string (gpointer data, gpointer user_data)
{
  (void) user_data;
  return g_strdup (((NvDsUserMeta *) data)->user_meta_data);
}

static void
release_string (gpointer data, gpointer user_data)
{
  (void) user_data;
  g_clear_pointer (&((NvDsUserMeta *) data)->user_meta_data, g_free);
}

static NvDsUserMeta *
new_user (NvDsBatchMeta * batch, const gchar * text)
{
  NvDsUserMeta *user = nvds_acquire_user_meta_from_pool (batch);
  user->user_meta_data = g_strdup (text);
  user->base_meta.meta_type = nvds_get_user_meta_type ((gchar *) "STANDIN.CHECK");
  user->base_meta.copy_func = copy_string;
  user->base_meta.release_func = release_string;
  return user;
}

static NvDsObjectMeta *
new_object (NvDsBatchMeta * batch, guint i)
{
  NvDsObjectMeta *obj = nvds_acquire_obj_meta_from_pool (batch);
  obj->unique_component_id = 15;
  obj->class_id = i % 3;
  obj->object_id = UNTRACKED_OBJECT_ID;
  obj->confidence = 0.5f;
  obj->rect_params.left = obj->detector_bbox_info.org_bbox_coords.left = 10.0f * i;
  obj->rect_params.top = obj->detector_bbox_info.org_bbox_coords.top = 20.0f;
  obj->rect_params.width = obj->detector_bbox_info.org_bbox_coords.width = 8.0f;
  obj->rect_params.height = obj->detector_bbox_info.org_bbox_coords.height = 9.0f;
  obj->rect_params.border_width = 3;
#if NVDS_ROTATION
  obj->rect_params.rotation_angle = 30.0f;
#endif
  g_snprintf (obj->obj_label, MAX_LABEL_SIZE, "label %u", i);
  obj->text_params.display_text = g_strdup (obj->obj_label);
  obj->text_params.font_params.font_name = (char *) "Serif";
  obj->text_params.font_params.font_size = 11;
  obj->mask_params.width = obj->mask_params.height = 2;
  obj->mask_params.size = 4 * sizeof (float);
  obj->mask_params.data = g_malloc0 (obj->mask_params.size);
  return obj;
}

static void
fill_frame (NvDsBatchMeta * batch, NvDsFrameMeta * frame, guint objects)
{
  NvDsObjectMeta *parent = NULL;
  NvDsDisplayMeta *display = nvds_acquire_display_meta_from_pool (batch);
  display->num_labels = 1;
  display->text_params[0].display_text = g_strdup ("display");
  display->text_params[0].font_params.font_name = (char *) "Serif";
  display->text_params[0].font_params.font_size = 11;
  nvds_add_display_meta_to_frame (frame, display);
  for (guint i = 0; i < objects; i++) {
    NvDsObjectMeta *obj = new_object (batch, i);
    NvDsClassifierMeta *classifier = nvds_acquire_classifier_meta_from_pool (batch);
    NvDsLabelInfo *label = nvds_acquire_label_info_meta_from_pool (batch);
    g_strlcpy (label->result_label, "red", MAX_LABEL_SIZE);
    label->pResult_label = g_strdup ("a label that is long");
    nvds_add_label_info_meta_to_classifier (classifier, label);
    nvds_add_classifier_meta_to_object (obj, classifier);
    nvds_add_user_meta_to_obj (obj, new_user (batch, "object"));
    nvds_add_obj_meta_to_frame (frame, obj, parent);
    parent = parent ? parent : obj;
  }
  nvds_add_user_meta_to_frame (frame, new_user (batch, "frame"));
  frame->bInferDone = TRUE;
}

static GstBuffer *
new_buffer (guint frames, guint objects)
{
  NvDsBatchMeta *batch = nvds_create_batch_meta (frames);
  GstBuffer *buffer = gst_buffer_new ();
  NvDsMeta *meta;
  nvds_acquire_meta_lock (batch);
  for (guint i = 0; i < frames; i++) {
    NvDsFrameMeta *frame = nvds_acquire_frame_meta_from_pool (batch);
    frame->batch_id = frame->pad_index = frame->source_id = i;
    frame->pipeline_width = 64;
    frame->pipeline_height = 48;
    fill_frame (batch, frame, objects);
    nvds_add_frame_meta_to_batch (batch, frame);
  }
  nvds_add_user_meta_to_batch (batch, new_user (batch, "batch"));
  nvds_release_meta_lock (batch);
  meta = gst_buffer_add_nvds_meta (buffer, batch, NULL, nvds_batch_meta_copy_func,
      nvds_batch_meta_release_func);
  meta->meta_type = NVDS_BATCH_GST_META;
  return buffer;
}

static void
check_copy (GstBuffer * buffer)
{
  NvDsBatchMeta *from = gst_buffer_get_nvds_batch_meta (buffer), *to;
  GstBuffer *copy = gst_buffer_copy (buffer);
  NvDsFrameMeta *a, *b;
  NvDsObjectMeta *first, *last;
  to = gst_buffer_get_nvds_batch_meta (copy);
  CHECK (to && to != from);
  a = from->frame_meta_list->data;
  b = to->frame_meta_list->data;
  CHECK (a->pipeline_width == 64 && b->pipeline_width == 0 && b->pipeline_height == 0);
  CHECK (a->num_obj_meta == b->num_obj_meta && b->bInferDone);
  first = a->obj_meta_list->data;
  last = g_list_last (b->obj_meta_list)->data;
  CHECK (!strcmp (first->obj_label, last->obj_label));
  CHECK (last->text_params.display_text != first->text_params.display_text);
  CHECK (!last->parent || g_list_find (b->obj_meta_list, last->parent));
  CHECK (g_list_length (to->batch_user_meta_list) == 1);
  gst_buffer_unref (copy);
}

static void
check_remove (GstBuffer * buffer)
{
  NvDsBatchMeta *batch = gst_buffer_get_nvds_batch_meta (buffer);
  NvDsFrameMeta *frame = batch->frame_meta_list->data;
  guint n = frame->num_obj_meta;
  NvDsObjectMeta *obj = frame->obj_meta_list->data, *again;
  nvds_acquire_meta_lock (batch);
  nvds_remove_obj_meta_from_frame (frame, obj);
  CHECK (frame->num_obj_meta == n - 1);
  again = nvds_acquire_obj_meta_from_pool (batch);
  CHECK (again == obj && again->rect_params.left == 0.0f && !again->text_params.display_text);
  nvds_add_obj_meta_to_frame (frame, again, NULL);
  CHECK (frame->obj_meta_list->data == again);
  nvds_release_meta_lock (batch);
}

static void
check_readers (GstBuffer * buffer, NvdsReaderTracker * tracker)
{
  NvDsBatchMeta *batch = gst_buffer_get_nvds_batch_meta (buffer);
  gboolean ok = FALSE;
  nvds_reader_free (nvds_reader_dump (buffer));
  nvds_reader_free (nvds_reader_osd (batch, &ok));
  CHECK (ok);
  nvds_reader_free (nvds_reader_msgconv (batch, &ok));
  CHECK (ok);
  nvds_reader_free (nvds_reader_track (tracker, batch));
}

static void
check_surface (NvBufSurfaceMemType type)
{
  NvBufSurfaceCreateParams params = { .width = 161, .height = 121, .memType = type,
    .colorFormat = NVBUF_COLOR_FORMAT_NV12
  };
  NvBufSurface *surf = NULL;
  NvBufSurfaceParams *frame;
  CHECK (NvBufSurfaceCreate (&surf, 2, &params) == 0);
  frame = &surf->surfaceList[1];
  CHECK (frame->pitch == 512 && frame->planeParams.offset[1] == 512 * 121);
  CHECK ((NvBufSurfaceMap (surf, -1, -1, NVBUF_MAP_READ) == 0) ==
      (type != NVBUF_MEM_CUDA_DEVICE));
  if (type != NVBUF_MEM_CUDA_DEVICE) {
    CHECK (NvBufSurfaceSyncForCpu (surf, 1, 0) == 0);
    memset (frame->mappedAddr.addr[1], 1, frame->planeParams.psize[1]);
    CHECK (NvBufSurfaceUnMap (surf, -1, -1) == 0);
  }
  CHECK (nvbuf_standin_mapped () == 0);
  NvBufSurfaceDestroy (surf);
}

int
main (int argc, char **argv)
{
  guint rounds = argc > 1 ? (guint) atoi (argv[1]) : 100;
  NvdsReaderTracker *tracker;
  gst_init (NULL, NULL);
  tracker = nvds_reader_tracker_new ();
  for (guint i = 0; i < rounds; i++) {
    GstBuffer *buffer = new_buffer (2, 5);
    if (i % 10 == 0) {
      check_copy (buffer);
      check_readers (buffer, tracker);
      check_remove (buffer);
    }
    gst_buffer_unref (buffer);
  }
  nvds_reader_tracker_free (tracker);
  for (gint type = NVBUF_MEM_CUDA_PINNED; type <= NVBUF_MEM_SYSTEM; type++)
    check_surface (type);
  for (gint type = NVDS_FRAME_META; type <= NVDS_USER_META; type++) {
    CHECK (nvds_standin_counter ("acquired", type) == nvds_standin_counter ("appended", type));
    CHECK (nvds_standin_counter ("acquired", type) == nvds_standin_counter ("released", type));
  }
  CHECK (nvds_standin_counter ("batch_created", 0) ==
      nvds_standin_counter ("batch_destroyed", 0));
  CHECK (nvds_standin_counter ("locked", 0) == nvds_standin_counter ("unlocked", 0));
  gst_deinit ();
  return failures != 0;
}
