/* SPDX-License-Identifier: Apache-2.0
 *
 * Deep copies of libnvds_meta, as made when GStreamer copies a buffer. A copied frame has no pipeline
 * size, and objects come out in reverse: each list is walked from its head and prepended. */
#include "nvds_standin.h"
#include <string.h>

void nvds_standin_count_copy (gboolean user);

/* base_meta of a fresh element is kept: it names the pool the element belongs to. */
#define COPY_FROM(field, from, to, Type) \
  memcpy ((guint8 *) (to) + offsetof (Type, field), (const guint8 *) (from) + offsetof (Type, field), \
      sizeof (Type) - offsetof (Type, field))

static void
copy_context (const NvDsBaseMeta * from, NvDsBaseMeta * to)
{
  to->uContext = from->uContext;
  to->copy_func = from->copy_func;
  to->release_func = from->release_func;
}

static NvDsUserMeta *
copy_user (NvDsUserMeta * from, NvDsBatchMeta * batch)
{
  NvDsUserMeta *to;
  if (!from->base_meta.copy_func)
    return NULL;
  to = nvds_acquire_user_meta_from_pool (batch);
  copy_context (&from->base_meta, &to->base_meta);
  to->base_meta.meta_type = from->base_meta.meta_type;
  to->user_meta_data = from->base_meta.copy_func (from, NULL);
  nvds_standin_count_copy (TRUE);
  return to;
}

#define COPY_USER_LIST(name, Owner, add) \
  void name (NvDsUserMetaList * from, Owner * to) { \
    for (; from; from = from->next) { \
      NvDsUserMeta *user = copy_user (from->data, to->base_meta.batch_meta); \
      if (user) \
        add (to, user); \
    } \
  }

COPY_USER_LIST (nvds_copy_batch_user_meta_list, NvDsBatchMeta, nvds_add_user_meta_to_batch)
COPY_USER_LIST (nvds_copy_frame_user_meta_list, NvDsFrameMeta, nvds_add_user_meta_to_frame)
COPY_USER_LIST (nvds_copy_obj_user_meta_list, NvDsObjectMeta, nvds_add_user_meta_to_obj)

void
nvds_copy_label_info_meta (NvDsLabelInfo * from, NvDsLabelInfo * to)
{
  copy_context (&from->base_meta, &to->base_meta);
  COPY_FROM (num_classes, from, to, NvDsLabelInfo);
  to->pResult_label = g_strdup (from->pResult_label);
}

void
nvds_copy_label_info_list (NvDsLabelInfoList * from, NvDsClassifierMeta * to)
{
  for (; from; from = from->next) {
    NvDsLabelInfo *label = nvds_acquire_label_info_meta_from_pool (to->base_meta.batch_meta);
    nvds_copy_label_info_meta (from->data, label);
    nvds_add_label_info_meta_to_classifier (to, label);
  }
}

void
nvds_copy_classifier_meta (NvDsClassifierMeta * from, NvDsClassifierMeta * to)
{
  copy_context (&from->base_meta, &to->base_meta);
  to->unique_component_id = from->unique_component_id;
  to->classifier_type = from->classifier_type;
  nvds_copy_label_info_list (from->label_info_list, to);
}

void
nvds_copy_classification_list (NvDsClassifierMetaList * from, NvDsObjectMeta * to)
{
  for (; from; from = from->next) {
    NvDsClassifierMeta *classifier =
        nvds_acquire_classifier_meta_from_pool (to->base_meta.batch_meta);
    nvds_copy_classifier_meta (from->data, classifier);
    nvds_add_classifier_meta_to_object (to, classifier);
  }
}

void
nvds_copy_obj_meta (NvDsObjectMeta * from, NvDsObjectMeta * to)
{
  copy_context (&from->base_meta, &to->base_meta);
  COPY_FROM (parent, from, to, NvDsObjectMeta);
  to->classifier_meta_list = NULL;
  to->obj_user_meta_list = NULL;
  to->text_params.display_text = g_strdup (from->text_params.display_text);
  to->mask_params.data = g_memdup2 (from->mask_params.data, from->mask_params.size);
  nvds_copy_classification_list (from->classifier_meta_list, to);
  nvds_copy_obj_user_meta_list (from->obj_user_meta_list, to);
}

void
nvds_copy_obj_meta_list (NvDsObjectMetaList * from, NvDsFrameMeta * to)
{
  GHashTable *copies = g_hash_table_new (NULL, NULL);
  for (; from; from = from->next) {
    NvDsObjectMeta *obj = nvds_acquire_obj_meta_from_pool (to->base_meta.batch_meta);
    nvds_copy_obj_meta (from->data, obj);
    nvds_add_obj_meta_to_frame (to, obj, obj->parent);
    g_hash_table_insert (copies, from->data, obj);
  }
  /* a parent is known only once the whole list is copied */
  for (GList * l = to->obj_meta_list; l; l = l->next) {
    NvDsObjectMeta *obj = l->data;
    if (obj->parent)
      obj->parent = g_hash_table_lookup (copies, obj->parent);
  }
  g_hash_table_unref (copies);
}

void
nvds_copy_display_meta (NvDsDisplayMeta * from, NvDsDisplayMeta * to)
{
  copy_context (&from->base_meta, &to->base_meta);
  COPY_FROM (num_rects, from, to, NvDsDisplayMeta);
  for (guint i = 0; i < MAX_ELEMENTS_IN_DISPLAY_META; i++)
    to->text_params[i].display_text = g_strdup (from->text_params[i].display_text);
}

void
nvds_copy_display_meta_list (NvDisplayMetaList * from, NvDsFrameMeta * to)
{
  for (; from; from = from->next) {
    NvDsDisplayMeta *display = nvds_acquire_display_meta_from_pool (to->base_meta.batch_meta);
    nvds_copy_display_meta (from->data, display);
    nvds_add_display_meta_to_frame (to, display);
  }
}

void
nvds_copy_frame_meta (NvDsFrameMeta * from, NvDsFrameMeta * to)
{
  copy_context (&from->base_meta, &to->base_meta);
  COPY_FROM (pad_index, from, to, NvDsFrameMeta);
  to->obj_meta_list = NULL;
  to->display_meta_list = NULL;
  to->frame_user_meta_list = NULL;
  to->num_obj_meta = 0;
  to->pipeline_width = to->pipeline_height = 0;
  nvds_copy_obj_meta_list (from->obj_meta_list, to);
  nvds_copy_display_meta_list (from->display_meta_list, to);
  nvds_copy_frame_user_meta_list (from->frame_user_meta_list, to);
}

void
nvds_copy_frame_meta_list (NvDsFrameMetaList * from, NvDsBatchMeta * to)
{
  for (; from; from = from->next) {
    NvDsFrameMeta *frame = nvds_acquire_frame_meta_from_pool (to);
    nvds_copy_frame_meta (from->data, frame);
    nvds_add_frame_meta_to_batch (to, frame);
  }
}

gpointer
nvds_batch_meta_copy_func (gpointer data, gpointer user_data)
{
  NvDsBatchMeta *from = data;
  NvDsBatchMeta *to = nvds_create_batch_meta (from->max_frames_in_batch);
  (void) user_data;
  nvds_acquire_meta_lock (from);
  nvds_acquire_meta_lock (to);
  memcpy (to->misc_batch_info, from->misc_batch_info, sizeof to->misc_batch_info);
  nvds_copy_frame_meta_list (from->frame_meta_list, to);
  nvds_copy_batch_user_meta_list (from->batch_user_meta_list, to);
  nvds_release_meta_lock (to);
  nvds_release_meta_lock (from);
  nvds_standin_count_copy (FALSE);
  return to;
}

void
nvds_batch_meta_release_func (gpointer data, gpointer user_data)
{
  (void) user_data;
  nvds_destroy_batch_meta (data);
}

NvDsFrameMeta *
nvds_get_nth_frame_meta (NvDsFrameMetaList * list, guint index)
{
  return g_list_nth_data (list, index);
}

/* A number for each descriptor, the same for the life of the process */
NvDsMetaType
nvds_get_user_meta_type (gchar * descriptor)
{
  static GMutex mutex;
  static GPtrArray *names;
  guint i;
  g_mutex_lock (&mutex);
  if (!names)
    names = g_ptr_array_new ();
  for (i = 0; i < names->len; i++)
    if (!strcmp (g_ptr_array_index (names, i), descriptor))
      break;
  if (i == names->len)
    g_ptr_array_add (names, g_strdup (descriptor));
  g_mutex_unlock (&mutex);
  return NVDS_START_USER_META + 1 + i;
}

gboolean
nvds_get_current_metadata_info (NvDsBatchMeta * batch)
{
  g_print ("batch of %u frames (at most %u)\n", batch->num_frames_in_batch,
      batch->max_frames_in_batch);
  for (GList * l = batch->frame_meta_list; l; l = l->next) {
    NvDsFrameMeta *frame = l->data;
    g_print ("  source %u frame %d: %u objects, inferred %d\n", frame->source_id, frame->frame_num,
        frame->num_obj_meta, frame->bInferDone);
  }
  return TRUE;
}
