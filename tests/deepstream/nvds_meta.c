/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools and lists of libnvds_meta. Every element is its own heap block, so that a write past its end
 * is seen by ASan and valgrind, and carries a hidden header that tells whether it was appended. */
#include "nvds_standin.h"
#include <string.h>

#define ELEMENT_MAGIC 0x4e56454c
#define BATCH_MAGIC 0x4e564254
#define N_TYPES (NVDS_USER_META + 1)

typedef enum { EMPTY, ACQUIRED, APPENDED } ElementState;

typedef struct
{
  guint32 magic;
  guint32 state;
  GList *full_link;
} Element;

typedef struct
{
  NvDsBatchMeta meta;
  guint32 magic;
  GThread *owner;
  gint depth;
} Batch;

/* acquired, appended and released are per meta type; the others are kept under type 0 */
typedef enum
{
  C_ACQUIRED, C_APPENDED, C_RELEASED, C_ACQUIRED_UNLOCKED, C_DOUBLE_APPEND, C_FOREIGN,
  C_NEVER_APPENDED, C_BATCH_CREATED, C_BATCH_DESTROYED, C_BATCH_COPIED, C_USER_COPIED,
  C_USER_RELEASED, C_LOCKED, C_UNLOCKED, C_UNLOCK_BY_OTHER, C_DESTROYED_LOCKED, N_COUNTERS
} Counter;

static const gchar *const counter_names[N_COUNTERS] = {
  "acquired", "appended", "released", "acquired_unlocked", "double_append", "foreign",
  "never_appended", "batch_created", "batch_destroyed", "batch_copied", "user_copied",
  "user_released", "locked", "unlocked", "unlock_by_other", "destroyed_locked"
};

static const gchar *const type_names[N_TYPES] = {
  NULL, "batch", "frame", "object", "display", "classifier", "label", "user"
};

static gsize counters[N_COUNTERS][N_TYPES];
static gint poison = -1;

static void
count (Counter counter, gint type)
{
  __atomic_add_fetch (&counters[counter][type], 1, __ATOMIC_RELAXED);
}

void nvds_standin_count_copy (gboolean user);
void
nvds_standin_count_copy (gboolean user)
{
  count (user ? C_USER_COPIED : C_BATCH_COPIED, 0);
}

guint64
nvds_standin_counter (const gchar * name, gint meta_type)
{
  for (guint i = 0; i < N_COUNTERS; i++)
    if (!strcmp (name, counter_names[i]) && meta_type >= 0 && meta_type < N_TYPES)
      return __atomic_load_n (&counters[i][meta_type], __ATOMIC_RELAXED);
  return G_MAXUINT64;
}

gchar *
nvds_standin_counters (void)
{
  GString *text = g_string_new ("{");
  for (guint i = 0; i < N_COUNTERS; i++) {
    g_string_append_printf (text, "%s\"%s\": ", i ? ", " : "", counter_names[i]);
    if (i > C_NEVER_APPENDED) {
      g_string_append_printf (text, "%" G_GSIZE_FORMAT, counters[i][0]);
      continue;
    }
    g_string_append_c (text, '{');
    for (guint t = NVDS_FRAME_META; t < N_TYPES; t++)
      g_string_append_printf (text, "%s\"%s\": %" G_GSIZE_FORMAT, t > NVDS_FRAME_META ? ", " : "",
          type_names[t], counters[i][t]);
    g_string_append_c (text, '}');
  }
  g_string_append_c (text, '}');
  return g_string_free (text, FALSE);
}

void
nvds_standin_free (gpointer text)
{
  g_free (text);
}

void
nvds_standin_reset_counters (void)
{
  memset (counters, 0, sizeof counters);
}

void
nvds_standin_set_poison (gboolean on)
{
  poison = on ? 1 : 0;
}

gint
nvds_standin_layout (void)
{
  return NVDS_ROTATION;
}

/* A gst-launch process has no other way to hand the final counts to a test. */
__attribute__((destructor))
static void
write_counters (void)
{
  const gchar *path = g_getenv ("NVDS_STANDIN_COUNTERS");
  if (path) {
    gchar *text = nvds_standin_counters ();
    g_file_set_contents (path, text, -1, NULL);
    g_free (text);
  }
}

/* Pools */

static Element *
element_of (gpointer meta)
{
  Element *element = (Element *) meta - 1;
  if (!meta || element->magic != ELEMENT_MAGIC) {
    count (C_FOREIGN, 0);
    g_critical ("stand-in: %p did not come from a pool", meta);
    return NULL;
  }
  return element;
}

static NvDsMetaPool *
pool_new (NvDsMetaType type, gsize size)
{
  NvDsMetaPool *pool = g_new0 (NvDsMetaPool, 1);
  pool->meta_type = type;
  pool->element_size = size;
  return pool;
}

static NvDsMetaPool *
pool_for (NvDsBatchMeta * batch, NvDsMetaType type)
{
  switch (type) {
    case NVDS_FRAME_META:
      return batch->frame_meta_pool;
    case NVDS_OBJ_META:
      return batch->obj_meta_pool;
    case NVDS_CLASSIFIER_META:
      return batch->classifier_meta_pool;
    case NVDS_DISPLAY_META:
      return batch->display_meta_pool;
    case NVDS_LABEL_INFO_META:
      return batch->label_info_meta_pool;
    default:
      return batch->user_meta_pool;
  }
}

/* With poison on, a writer that leaves a field of a detection to the pool is found out. */
static void
poison_object (NvDsObjectMeta * obj)
{
  const guint8 junk = 0xA5;
  char *text = obj->text_params.display_text, *font = obj->text_params.font_params.font_name;
  memset (&obj->unique_component_id, junk,
      offsetof (NvDsObjectMeta, tracker_bbox_info) - offsetof (NvDsObjectMeta, unique_component_id));
  memset (&obj->confidence, junk, sizeof obj->confidence);
  memset (&obj->rect_params, junk, sizeof obj->rect_params);
  memset (&obj->text_params, junk, sizeof obj->text_params);
  memset (obj->obj_label, junk, sizeof obj->obj_label);
  obj->text_params.display_text = text;
  obj->text_params.font_params.font_name = font;
}

static gpointer
acquire (NvDsBatchMeta * batch, NvDsMetaPool * pool)
{
  Batch *self = (Batch *) batch;
  Element *element;
  NvDsBaseMeta *base;
  if (self->owner != g_thread_self ())
    count (C_ACQUIRED_UNLOCKED, pool->meta_type);
  g_rec_mutex_lock (&batch->meta_mutex);
  if (pool->empty_list) {
    base = pool->empty_list->data;
    pool->empty_list = g_list_delete_link (pool->empty_list, pool->empty_list);
    pool->num_empty_elements--;
    element = (Element *) base - 1;
  } else {
    element = g_malloc0 (sizeof (Element) + pool->element_size);
    element->magic = ELEMENT_MAGIC;
    base = (NvDsBaseMeta *) (element + 1);
    pool->max_elements_in_pool++;
  }
  pool->full_list = g_list_prepend (pool->full_list, base);
  pool->num_full_elements++;
  element->full_link = pool->full_list;
  element->state = ACQUIRED;
  base->batch_meta = batch;
  base->meta_type = pool->meta_type;
  if (poison < 0)
    poison = g_getenv ("NVDS_STANDIN_POISON") != NULL;
  if (poison && pool->meta_type == NVDS_OBJ_META)
    poison_object ((NvDsObjectMeta *) base);
  count (C_ACQUIRED, pool->meta_type);
  g_rec_mutex_unlock (&batch->meta_mutex);
  return base;
}

static gboolean
mark_appended (gpointer meta, NvDsMetaType type)
{
  Element *element = element_of (meta);
  if (!element)
    return FALSE;
  if (element->state != ACQUIRED) {
    count (C_DOUBLE_APPEND, type);
    g_critical ("stand-in: %s %p appended twice or after its release", type_names[type], meta);
    return FALSE;
  }
  element->state = APPENDED;
  count (C_APPENDED, type);
  return TRUE;
}

static void
clear_user_list (NvDsUserMetaList ** list);

/* What the element owns. Strings and masks are g_free'd: a client must have them from g_malloc. */
static void
release_contents (NvDsBaseMeta * base, NvDsMetaType type)
{
  if (type == NVDS_USER_META) {
    NvDsUserMeta *user = (NvDsUserMeta *) base;
    if (base->release_func && user->user_meta_data) {
      base->release_func (user, NULL);
      count (C_USER_RELEASED, 0);
    }
  } else if (type == NVDS_OBJ_META) {
    NvDsObjectMeta *obj = (NvDsObjectMeta *) base;
    nvds_clear_classifier_meta_list (obj, obj->classifier_meta_list);
    clear_user_list (&obj->obj_user_meta_list);
    g_free (obj->text_params.display_text);
    g_free (obj->mask_params.data);
  } else if (type == NVDS_CLASSIFIER_META) {
    NvDsClassifierMeta *classifier = (NvDsClassifierMeta *) base;
    nvds_clear_label_info_meta_list (classifier, classifier->label_info_list);
  } else if (type == NVDS_LABEL_INFO_META) {
    g_free (((NvDsLabelInfo *) base)->pResult_label);
  } else if (type == NVDS_DISPLAY_META) {
    NvDsDisplayMeta *display = (NvDsDisplayMeta *) base;
    for (guint i = 0; i < MAX_ELEMENTS_IN_DISPLAY_META; i++)
      g_free (display->text_params[i].display_text);
  } else if (type == NVDS_FRAME_META) {
    NvDsFrameMeta *frame = (NvDsFrameMeta *) base;
    nvds_clear_obj_meta_list (frame, frame->obj_meta_list);
    nvds_clear_display_meta_list (frame, frame->display_meta_list);
    clear_user_list (&frame->frame_user_meta_list);
  }
}

static void
release (gpointer meta, NvDsMetaType type)
{
  Element *element = element_of (meta);
  NvDsBaseMeta *base = meta;
  NvDsBatchMeta *batch;
  NvDsMetaPool *pool;
  if (!element || element->state == EMPTY)
    return;
  batch = base->batch_meta;
  pool = pool_for (batch, type);
  release_contents (base, type);
  if (element->state == ACQUIRED)
    count (C_NEVER_APPENDED, type);
  pool->full_list = g_list_delete_link (pool->full_list, element->full_link);
  pool->num_full_elements--;
  memset (meta, 0, pool->element_size);
  element->state = EMPTY;
  element->full_link = NULL;
  pool->empty_list = g_list_prepend (pool->empty_list, meta);
  pool->num_empty_elements++;
  count (C_RELEASED, type);
}

static void
clear_list (GList ** list, NvDsMetaType type)
{
  while (*list) {
    gpointer meta = (*list)->data;
    *list = g_list_delete_link (*list, *list);
    release (meta, type);
  }
}

static void
clear_user_list (NvDsUserMetaList ** list)
{
  clear_list (list, NVDS_USER_META);
}

static void
pool_free (NvDsMetaPool * pool)
{
  while (pool->full_list)
    release (pool->full_list->data, pool->meta_type);
  for (GList * l = pool->empty_list; l; l = l->next) {
    Element *element = (Element *) l->data - 1;
    element->magic = 0;
    g_free (element);
  }
  g_list_free (pool->empty_list);
  g_free (pool);
}

/* Batch */

void
nvds_acquire_meta_lock (NvDsBatchMeta * batch)
{
  Batch *self = (Batch *) batch;
  g_rec_mutex_lock (&batch->meta_mutex);
  self->owner = g_thread_self ();
  self->depth++;
  count (C_LOCKED, 0);
}

void
nvds_release_meta_lock (NvDsBatchMeta * batch)
{
  Batch *self = (Batch *) batch;
  if (self->owner != g_thread_self ()) {
    count (C_UNLOCK_BY_OTHER, 0);
    g_critical ("stand-in: meta lock released by a thread that does not hold it");
    return;
  }
  count (C_UNLOCKED, 0);
  if (--self->depth == 0)
    self->owner = NULL;
  g_rec_mutex_unlock (&batch->meta_mutex);
}

NvDsBatchMeta *
nvds_create_batch_meta (guint max_batch_size)
{
  Batch *self = g_new0 (Batch, 1);
  NvDsBatchMeta *batch = &self->meta;
  self->magic = BATCH_MAGIC;
  batch->base_meta.batch_meta = batch;
  batch->base_meta.meta_type = NVDS_BATCH_META;
  batch->base_meta.copy_func = nvds_batch_meta_copy_func;
  batch->base_meta.release_func = nvds_batch_meta_release_func;
  batch->max_frames_in_batch = max_batch_size;
  batch->frame_meta_pool = pool_new (NVDS_FRAME_META, sizeof (NvDsFrameMeta));
  batch->obj_meta_pool = pool_new (NVDS_OBJ_META, sizeof (NvDsObjectMeta));
  batch->classifier_meta_pool = pool_new (NVDS_CLASSIFIER_META, sizeof (NvDsClassifierMeta));
  batch->display_meta_pool = pool_new (NVDS_DISPLAY_META, sizeof (NvDsDisplayMeta));
  batch->user_meta_pool = pool_new (NVDS_USER_META, sizeof (NvDsUserMeta));
  batch->label_info_meta_pool = pool_new (NVDS_LABEL_INFO_META, sizeof (NvDsLabelInfo));
  g_rec_mutex_init (&batch->meta_mutex);
  count (C_BATCH_CREATED, 0);
  return batch;
}

gboolean
nvds_destroy_batch_meta (NvDsBatchMeta * batch)
{
  Batch *self = (Batch *) batch;
  if (!batch || self->magic != BATCH_MAGIC)
    return FALSE;
  if (self->depth) {
    count (C_DESTROYED_LOCKED, 0);
    g_critical ("stand-in: batch meta destroyed while its lock is held");
  }
  clear_user_list (&batch->batch_user_meta_list);
  clear_list (&batch->frame_meta_list, NVDS_FRAME_META);
  pool_free (batch->frame_meta_pool);
  pool_free (batch->obj_meta_pool);
  pool_free (batch->classifier_meta_pool);
  pool_free (batch->display_meta_pool);
  pool_free (batch->label_info_meta_pool);
  pool_free (batch->user_meta_pool);
  g_rec_mutex_clear (&batch->meta_mutex);
  self->magic = 0;
  g_free (self);
  count (C_BATCH_DESTROYED, 0);
  return TRUE;
}

/* Acquire, add, remove and clear: the same few lines for each kind of list */

#define ACQUIRE(Type, name, pool) \
  Type *nvds_acquire_##name##_from_pool (NvDsBatchMeta * batch) { return acquire (batch, batch->pool); }

ACQUIRE (NvDsFrameMeta, frame_meta, frame_meta_pool)
ACQUIRE (NvDsObjectMeta, obj_meta, obj_meta_pool)
ACQUIRE (NvDsClassifierMeta, classifier_meta, classifier_meta_pool)
ACQUIRE (NvDsDisplayMeta, display_meta, display_meta_pool)
ACQUIRE (NvDsLabelInfo, label_info_meta, label_info_meta_pool)
ACQUIRE (NvDsUserMeta, user_meta, user_meta_pool)

#define LOCK(meta) g_rec_mutex_lock (&(meta)->base_meta.batch_meta->meta_mutex)
#define UNLOCK(meta) g_rec_mutex_unlock (&(meta)->base_meta.batch_meta->meta_mutex)
#define NOTHING (void) 0

#define LIST(add, remove, clear, Owner, Type, type, list, insert, on_add, on_remove) \
  void add { \
    LOCK (owner); \
    if (mark_appended (meta, type)) { owner->list = insert (owner->list, meta); on_add; } \
    UNLOCK (owner); \
  } \
  void remove (Owner * owner, Type * meta) { \
    NvDsBatchMeta *batch = owner->base_meta.batch_meta; \
    GList *link; \
    g_rec_mutex_lock (&batch->meta_mutex); \
    link = g_list_find (owner->list, meta); \
    if (link) { \
      owner->list = g_list_delete_link (owner->list, link); on_remove; release (meta, type); \
    } else \
      count (C_FOREIGN, type); \
    g_rec_mutex_unlock (&batch->meta_mutex); \
  } \
  void clear { \
    LOCK (owner); \
    while (owner->list) { \
      Type *meta = owner->list->data; \
      owner->list = g_list_delete_link (owner->list, owner->list); on_remove; release (meta, type); \
    } \
    UNLOCK (owner); \
    (void) unused; \
  }

LIST (nvds_add_frame_meta_to_batch (NvDsBatchMeta * owner, NvDsFrameMeta * meta),
    nvds_remove_frame_meta_from_batch,
    nvds_clear_frame_meta_list (NvDsBatchMeta * owner, NvDsFrameMetaList * unused),
    NvDsBatchMeta, NvDsFrameMeta, NVDS_FRAME_META, frame_meta_list, g_list_append,
    owner->num_frames_in_batch++, owner->num_frames_in_batch--)
LIST (nvds_add_obj_meta_to_frame (NvDsFrameMeta * owner, NvDsObjectMeta * meta,
        NvDsObjectMeta * parent),
    nvds_remove_obj_meta_from_frame,
    nvds_clear_obj_meta_list (NvDsFrameMeta * owner, NvDsObjectMetaList * unused),
    NvDsFrameMeta, NvDsObjectMeta, NVDS_OBJ_META, obj_meta_list, g_list_prepend,
    meta->parent = parent; owner->num_obj_meta++, owner->num_obj_meta--)
LIST (nvds_add_display_meta_to_frame (NvDsFrameMeta * owner, NvDsDisplayMeta * meta),
    nvds_remove_display_meta_from_frame,
    nvds_clear_display_meta_list (NvDsFrameMeta * owner, NvDisplayMetaList * unused),
    NvDsFrameMeta, NvDsDisplayMeta, NVDS_DISPLAY_META, display_meta_list, g_list_prepend,
    NOTHING, NOTHING)
LIST (nvds_add_classifier_meta_to_object (NvDsObjectMeta * owner, NvDsClassifierMeta * meta),
    nvds_remove_classifier_meta_from_obj,
    nvds_clear_classifier_meta_list (NvDsObjectMeta * owner, NvDsClassifierMetaList * unused),
    NvDsObjectMeta, NvDsClassifierMeta, NVDS_CLASSIFIER_META, classifier_meta_list, g_list_prepend,
    NOTHING, NOTHING)
LIST (nvds_add_label_info_meta_to_classifier (NvDsClassifierMeta * owner, NvDsLabelInfo * meta),
    nvds_remove_label_info_meta_from_classifier,
    nvds_clear_label_info_meta_list (NvDsClassifierMeta * owner, NvDsLabelInfoList * unused),
    NvDsClassifierMeta, NvDsLabelInfo, NVDS_LABEL_INFO_META, label_info_list, g_list_prepend,
    owner->num_labels++, owner->num_labels--)
LIST (nvds_add_user_meta_to_batch (NvDsBatchMeta * owner, NvDsUserMeta * meta),
    nvds_remove_user_meta_from_batch,
    nvds_clear_batch_user_meta_list (NvDsBatchMeta * owner, NvDsUserMetaList * unused),
    NvDsBatchMeta, NvDsUserMeta, NVDS_USER_META, batch_user_meta_list, g_list_prepend,
    NOTHING, NOTHING)
LIST (nvds_add_user_meta_to_frame (NvDsFrameMeta * owner, NvDsUserMeta * meta),
    nvds_remove_user_meta_from_frame,
    nvds_clear_frame_user_meta_list (NvDsFrameMeta * owner, NvDsUserMetaList * unused),
    NvDsFrameMeta, NvDsUserMeta, NVDS_USER_META, frame_user_meta_list, g_list_prepend,
    NOTHING, NOTHING)
LIST (nvds_add_user_meta_to_obj (NvDsObjectMeta * owner, NvDsUserMeta * meta),
    nvds_remove_user_meta_from_object,
    nvds_clear_obj_user_meta_list (NvDsObjectMeta * owner, NvDsUserMetaList * unused),
    NvDsObjectMeta, NvDsUserMeta, NVDS_USER_META, obj_user_meta_list, g_list_prepend,
    NOTHING, NOTHING)
