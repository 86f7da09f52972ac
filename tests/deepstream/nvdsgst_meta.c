/* SPDX-License-Identifier: Apache-2.0
 *
 * The GstMeta that carries a batch meta on a buffer. */
#include "nvdsgst_meta.h"

GType
nvds_meta_api_get_type (void)
{
  static gsize type = 0;
  static const gchar *tags[] = { NVDS_META_STRING, NULL };
  if (g_once_init_enter (&type))
    g_once_init_leave (&type, gst_meta_api_type_register ("NvDsMetaAPI", tags));
  return type;
}

static gboolean
nvds_meta_init (GstMeta * meta, gpointer params, GstBuffer * buffer)
{
  NvDsMeta *self = (NvDsMeta *) meta;
  (void) params;
  (void) buffer;
  self->meta_data = self->user_data = NULL;
  self->meta_type = -1;
  self->copyfunc = self->gst_to_nvds_meta_transform_func = NULL;
  self->freefunc = self->gst_to_nvds_meta_release_func = NULL;
  return TRUE;
}

static void
nvds_meta_free (GstMeta * meta, GstBuffer * buffer)
{
  NvDsMeta *self = (NvDsMeta *) meta;
  (void) buffer;
  if (self->meta_data && self->freefunc)
    self->freefunc (self->meta_data, self->user_data);
}

static gboolean
nvds_meta_transform (GstBuffer * to, GstMeta * meta, GstBuffer * from, GQuark type, gpointer data)
{
  NvDsMeta *self = (NvDsMeta *) meta;
  NvDsMeta *copy;
  (void) from;
  (void) type;
  (void) data;
  if (!self->meta_data || !self->copyfunc)
    return FALSE;
  copy = gst_buffer_add_nvds_meta (to, self->copyfunc (self->meta_data, self->user_data),
      self->user_data, self->copyfunc, self->freefunc);
  copy->meta_type = self->meta_type;
  copy->gst_to_nvds_meta_transform_func = self->gst_to_nvds_meta_transform_func;
  copy->gst_to_nvds_meta_release_func = self->gst_to_nvds_meta_release_func;
  return TRUE;
}

const GstMetaInfo *
nvds_meta_get_info (void)
{
  static const GstMetaInfo *info = NULL;
  if (g_once_init_enter (&info))
    g_once_init_leave (&info, gst_meta_register (nvds_meta_api_get_type (), "NvDsMeta",
            sizeof (NvDsMeta), nvds_meta_init, nvds_meta_free, nvds_meta_transform));
  return info;
}

NvDsMeta *
gst_buffer_add_nvds_meta (GstBuffer * buffer, gpointer meta_data, gpointer user_data,
    NvDsMetaCopyFunc copy_func, NvDsMetaReleaseFunc release_func)
{
  NvDsMeta *self = (NvDsMeta *) gst_buffer_add_meta (buffer, nvds_meta_get_info (), NULL);
  if (self) {
    self->meta_data = meta_data;
    self->user_data = user_data;
    self->copyfunc = copy_func;
    self->freefunc = release_func;
  }
  return self;
}

NvDsMeta *
gst_buffer_get_nvds_meta (GstBuffer * buffer)
{
  GType api = nvds_meta_api_get_type ();
  gpointer state = NULL;
  GstMeta *meta;
  NvDsMeta *last = NULL;
  while ((meta = gst_buffer_iterate_meta_filtered (buffer, &state, api)))
    last = (NvDsMeta *) meta;
  return last;
}

NvDsBatchMeta *
gst_buffer_get_nvds_batch_meta (GstBuffer * buffer)
{
  GType api = nvds_meta_api_get_type ();
  gpointer state = NULL;
  GstMeta *meta;
  while ((meta = gst_buffer_iterate_meta_filtered (buffer, &state, api)))
    if (((NvDsMeta *) meta)->meta_type == NVDS_BATCH_GST_META)
      return ((NvDsMeta *) meta)->meta_data;
  return NULL;
}
