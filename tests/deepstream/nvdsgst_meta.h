/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVDSGST_META_STANDIN_H
#define NVDSGST_META_STANDIN_H

#include <gst/gst.h>
#include "nvds_standin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NVDS_META_STRING "nvdsmeta"
#define NVDS_BATCH_GST_META (NVDS_GST_CUSTOM_META + 1)

typedef struct
{
  GstMeta meta;
  gpointer meta_data;
  gpointer user_data;
  gint meta_type;
  NvDsMetaCopyFunc copyfunc;
  NvDsMetaReleaseFunc freefunc;
  NvDsMetaCopyFunc gst_to_nvds_meta_transform_func;
  NvDsMetaReleaseFunc gst_to_nvds_meta_release_func;
} NvDsMeta;

_Static_assert (offsetof (NvDsMeta, meta_data) == 16, "NvDsMeta.meta_data");
_Static_assert (offsetof (NvDsMeta, meta_type) == 32, "NvDsMeta.meta_type");

GType nvds_meta_api_get_type (void);
const GstMetaInfo *nvds_meta_get_info (void);
NvDsMeta *gst_buffer_add_nvds_meta (GstBuffer * buffer, gpointer meta_data, gpointer user_data,
    NvDsMetaCopyFunc copy_func, NvDsMetaReleaseFunc release_func);
NvDsMeta *gst_buffer_get_nvds_meta (GstBuffer * buffer);
NvDsBatchMeta *gst_buffer_get_nvds_batch_meta (GstBuffer * buffer);

#ifdef __cplusplus
}
#endif

#endif
