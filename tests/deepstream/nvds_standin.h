/* SPDX-License-Identifier: Apache-2.0
 *
 * The C ABI of DeepStream's metadata, as far as an inference element, a tracker, an on-screen
 * display and a message converter use it. Names and layout follow the public headers, so that a
 * client built for one can load the other; the code behind them is this project's own.
 *
 * NVDS_ROTATION 1: NvOSD_RectParams ends with rotation_angle (SDK 9). 0: without it. */
#ifndef NVDS_STANDIN_H
#define NVDS_STANDIN_H

#include <glib.h>
#include <stddef.h>

#ifdef __cplusplus
#define _Static_assert static_assert
extern "C" {
#endif

#ifndef NVDS_ROTATION
#define NVDS_ROTATION 1
#endif

#define MAX_USER_FIELDS 4
#define MAX_RESERVED_FIELDS 4
#define MAX_LABEL_SIZE 128
#define MAX_ELEMENTS_IN_DISPLAY_META 16
#define UNTRACKED_OBJECT_ID G_MAXUINT64

typedef GList NvDsMetaList;
typedef GList NvDsFrameMetaList;
typedef GList NvDsObjectMetaList;
typedef GList NvDsClassifierMetaList;
typedef GList NvDsLabelInfoList;
typedef GList NvDisplayMetaList;
typedef GList NvDsUserMetaList;

typedef gpointer (*NvDsMetaCopyFunc) (gpointer data, gpointer user_data);
typedef void (*NvDsMetaReleaseFunc) (gpointer data, gpointer user_data);

typedef enum
{
  NVDS_INVALID_META = -1,
  NVDS_BATCH_META = 1,
  NVDS_FRAME_META,
  NVDS_OBJ_META,
  NVDS_DISPLAY_META,
  NVDS_CLASSIFIER_META,
  NVDS_LABEL_INFO_META,
  NVDS_USER_META,
  NVDS_PAYLOAD_META,
  NVDS_EVENT_MSG_META,
  NVDS_OPTICAL_FLOW_META,
  NVDS_LATENCY_MEASUREMENT_META,
  NVDSINFER_TENSOR_OUTPUT_META,
  NVDSINFER_SEGMENTATION_META,
  NVDS_CROP_IMAGE_META,
  NVDS_TRACKER_PAST_FRAME_META,
  NVDS_TRACKER_BATCH_REID_META,
  NVDS_TRACKER_OBJ_REID_META,
  NVDS_GST_CUSTOM_META = 4096,
  NVDS_START_USER_META = NVDS_GST_CUSTOM_META + 4096 + 1,
  NVDS_FORCE32_META = 0x7FFFFFFF
} NvDsMetaType;

typedef struct { float left, top, width, height; } NvBbox_Coords;
typedef struct { double red, green, blue, alpha; } NvOSD_ColorParams;

typedef struct
{
  char *font_name;
  unsigned int font_size;
  NvOSD_ColorParams font_color;
} NvOSD_FontParams;

typedef struct
{
  char *display_text;
  unsigned int x_offset, y_offset;
  NvOSD_FontParams font_params;
  int set_bg_clr;
  NvOSD_ColorParams text_bg_clr;
} NvOSD_TextParams;

typedef struct
{
  float left, top, width, height;
  unsigned int border_width;
  NvOSD_ColorParams border_color;
  unsigned int has_bg_color;
  unsigned int reserved;
  NvOSD_ColorParams bg_color;
  int has_color_info;
  int color_id;
#if NVDS_ROTATION
  float rotation_angle;
#endif
} NvOSD_RectParams;

typedef struct
{
  float *data;
  unsigned int size;
  float threshold;
  unsigned int width, height;
} NvOSD_MaskParams;

typedef struct
{
  unsigned int x1, y1, x2, y2, line_width;
  NvOSD_ColorParams line_color;
} NvOSD_LineParams;

typedef struct
{
  unsigned int x1, y1, x2, y2, arrow_width;
  int arrow_head;
  NvOSD_ColorParams arrow_color;
  unsigned int reserved;
} NvOSD_ArrowParams;

typedef struct
{
  unsigned int xc, yc, radius;
  NvOSD_ColorParams circle_color;
  unsigned int has_bg_color;
  NvOSD_ColorParams bg_color;
  unsigned int circle_width;
  unsigned int reserved;
} NvOSD_CircleParams;

typedef struct { NvBbox_Coords org_bbox_coords; } NvDsComp_BboxInfo;

typedef struct
{
  guint source_id;
  const gchar *uri, *sensor_id, *sensor_name;
} NvDsSensorInfo_meta;

typedef struct
{
  NvDsMetaType meta_type;
  guint max_elements_in_pool;
  guint element_size;
  guint num_empty_elements;
  guint num_full_elements;
  NvDsMetaList *empty_list;
  NvDsMetaList *full_list;
  NvDsMetaCopyFunc copy_func;
  NvDsMetaReleaseFunc release_func;
} NvDsMetaPool;

typedef struct _NvDsBatchMeta NvDsBatchMeta;

typedef struct
{
  NvDsBatchMeta *batch_meta;
  NvDsMetaType meta_type;
  void *uContext;
  NvDsMetaCopyFunc copy_func;
  NvDsMetaReleaseFunc release_func;
} NvDsBaseMeta;

struct _NvDsBatchMeta
{
  NvDsBaseMeta base_meta;
  guint max_frames_in_batch;
  guint num_frames_in_batch;
  NvDsMetaPool *frame_meta_pool;
  NvDsMetaPool *obj_meta_pool;
  NvDsMetaPool *classifier_meta_pool;
  NvDsMetaPool *display_meta_pool;
  NvDsMetaPool *user_meta_pool;
  NvDsMetaPool *label_info_meta_pool;
  NvDsFrameMetaList *frame_meta_list;
  NvDsUserMetaList *batch_user_meta_list;
  GRecMutex meta_mutex;
  gint64 misc_batch_info[MAX_USER_FIELDS];
  gint64 reserved[MAX_RESERVED_FIELDS];
};

typedef struct
{
  NvDsBaseMeta base_meta;
  guint pad_index;
  guint batch_id;
  gint frame_num;
  guint64 buf_pts;
  guint64 ntp_timestamp;
  guint source_id;
  gint num_surfaces_per_frame;
  guint source_frame_width;
  guint source_frame_height;
  guint surface_type;
  guint surface_index;
  guint num_obj_meta;
  gboolean bInferDone;
  NvDsObjectMetaList *obj_meta_list;
  NvDisplayMetaList *display_meta_list;
  NvDsUserMetaList *frame_user_meta_list;
  gint64 misc_frame_info[MAX_USER_FIELDS];
  guint pipeline_width;
  guint pipeline_height;
  NvDsSensorInfo_meta sensorInfo_meta;
  gint64 reserved[MAX_RESERVED_FIELDS];
} NvDsFrameMeta;

typedef struct _NvDsObjectMeta NvDsObjectMeta;
struct _NvDsObjectMeta
{
  NvDsBaseMeta base_meta;
  NvDsObjectMeta *parent;
  gint unique_component_id;
  gint class_id;
  guint64 object_id;
  NvDsComp_BboxInfo detector_bbox_info;
  NvDsComp_BboxInfo tracker_bbox_info;
  gfloat confidence;
  gfloat tracker_confidence;
  NvOSD_RectParams rect_params;
  NvOSD_MaskParams mask_params;
  NvOSD_TextParams text_params;
  gchar obj_label[MAX_LABEL_SIZE];
  NvDsClassifierMetaList *classifier_meta_list;
  NvDsUserMetaList *obj_user_meta_list;
  gint64 misc_obj_info[MAX_USER_FIELDS];
  gint64 reserved[MAX_RESERVED_FIELDS];
};

typedef struct
{
  NvDsBaseMeta base_meta;
  guint num_labels;
  gint unique_component_id;
  NvDsLabelInfoList *label_info_list;
  const gchar *classifier_type;
} NvDsClassifierMeta;

typedef struct
{
  NvDsBaseMeta base_meta;
  guint num_classes;
  gchar result_label[MAX_LABEL_SIZE];
  gchar *pResult_label;
  guint result_class_id;
  guint label_id;
  gfloat result_prob;
} NvDsLabelInfo;

typedef struct
{
  NvDsBaseMeta base_meta;
  guint num_rects, num_labels, num_lines, num_arrows, num_circles;
  NvOSD_RectParams rect_params[MAX_ELEMENTS_IN_DISPLAY_META];
  NvOSD_TextParams text_params[MAX_ELEMENTS_IN_DISPLAY_META];
  NvOSD_LineParams line_params[MAX_ELEMENTS_IN_DISPLAY_META];
  NvOSD_ArrowParams arrow_params[MAX_ELEMENTS_IN_DISPLAY_META];
  NvOSD_CircleParams circle_params[MAX_ELEMENTS_IN_DISPLAY_META];
  gint64 misc_osd_data[MAX_USER_FIELDS];
  gint64 reserved[MAX_RESERVED_FIELDS];
} NvDsDisplayMeta;

typedef struct
{
  NvDsBaseMeta base_meta;
  void *user_meta_data;
} NvDsUserMeta;

typedef struct
{
  guint classes, width, height;
  gint *class_map;
  gfloat *class_probabilities_map;
  void *priv_data;
  gint unique_id;
} NvDsInferSegmentationMeta;

#define NVDSINFER_MAX_DIMS 8
typedef struct { unsigned int numDims, d[NVDSINFER_MAX_DIMS], numElements; } NvDsInferDims;

typedef struct
{
  int dataType;                 /* 0 float, 1 half, 2 int8, 3 int32, 4 int64, 5 uint8 */
  NvDsInferDims inferDims;
  int bindingIndex;
  const char *layerName;
  void *buffer;
  int isInput;
} NvDsInferLayerInfo;

typedef struct { unsigned int width, height, channels; } NvDsInferNetworkInfo;

typedef struct
{
  guint unique_id;
  guint num_output_layers;
  NvDsInferLayerInfo *output_layers_info;
  void **out_buf_ptrs_host;
  void **out_buf_ptrs_dev;
  gint gpu_id;
  void *priv_data;
  NvDsInferNetworkInfo network_info;
  gboolean maintain_aspect_ratio;
  gboolean symmetric_padding;
} NvDsInferTensorMeta;

#define NVDS_AT(type, field, at) \
  _Static_assert (offsetof (type, field) == (at), #type "." #field)
#define NVDS_SIZE(type, size) _Static_assert (sizeof (type) == (size), #type)
#define NVDS_RECT_SIZE (NVDS_ROTATION ? 112 : 104)
#define NVDS_AFTER_RECT(at) ((at) - (NVDS_ROTATION ? 0 : 8))

NVDS_SIZE (NvDsBaseMeta, 40);
NVDS_SIZE (NvDsBatchMeta, 192);
NVDS_SIZE (NvDsFrameMeta, 232);
NVDS_SIZE (NvDsObjectMeta, NVDS_ROTATION ? 552 : 544);
NVDS_SIZE (NvDsClassifierMeta, 64);
NVDS_SIZE (NvDsLabelInfo, 200);
NVDS_SIZE (NvDsUserMeta, 48);
NVDS_SIZE (NvOSD_RectParams, NVDS_RECT_SIZE);
NVDS_SIZE (NvOSD_TextParams, 104);
NVDS_SIZE (NvOSD_MaskParams, 24);
NVDS_SIZE (NvOSD_ColorParams, 32);
NVDS_SIZE (NvOSD_FontParams, 48);
NVDS_AT (NvDsBaseMeta, meta_type, 8);
NVDS_AT (NvDsBaseMeta, copy_func, 24);
NVDS_AT (NvDsBaseMeta, release_func, 32);
NVDS_AT (NvDsBatchMeta, max_frames_in_batch, 40);
NVDS_AT (NvDsBatchMeta, num_frames_in_batch, 44);
NVDS_AT (NvDsBatchMeta, frame_meta_list, 96);
NVDS_AT (NvDsBatchMeta, batch_user_meta_list, 104);
NVDS_AT (NvDsFrameMeta, pad_index, 40);
NVDS_AT (NvDsFrameMeta, batch_id, 44);
NVDS_AT (NvDsFrameMeta, frame_num, 48);
NVDS_AT (NvDsFrameMeta, buf_pts, 56);
NVDS_AT (NvDsFrameMeta, ntp_timestamp, 64);
NVDS_AT (NvDsFrameMeta, source_id, 72);
NVDS_AT (NvDsFrameMeta, source_frame_width, 80);
NVDS_AT (NvDsFrameMeta, num_obj_meta, 96);
NVDS_AT (NvDsFrameMeta, bInferDone, 100);
NVDS_AT (NvDsFrameMeta, obj_meta_list, 104);
NVDS_AT (NvDsFrameMeta, display_meta_list, 112);
NVDS_AT (NvDsFrameMeta, frame_user_meta_list, 120);
NVDS_AT (NvDsFrameMeta, pipeline_width, 160);
NVDS_AT (NvDsObjectMeta, parent, 40);
NVDS_AT (NvDsObjectMeta, unique_component_id, 48);
NVDS_AT (NvDsObjectMeta, class_id, 52);
NVDS_AT (NvDsObjectMeta, object_id, 56);
NVDS_AT (NvDsObjectMeta, detector_bbox_info, 64);
NVDS_AT (NvDsObjectMeta, tracker_bbox_info, 80);
NVDS_AT (NvDsObjectMeta, confidence, 96);
NVDS_AT (NvDsObjectMeta, tracker_confidence, 100);
NVDS_AT (NvDsObjectMeta, rect_params, 104);
NVDS_AT (NvDsObjectMeta, mask_params, NVDS_AFTER_RECT (216));
NVDS_AT (NvDsObjectMeta, text_params, NVDS_AFTER_RECT (240));
NVDS_AT (NvDsObjectMeta, obj_label, NVDS_AFTER_RECT (344));
NVDS_AT (NvDsObjectMeta, classifier_meta_list, NVDS_AFTER_RECT (472));
NVDS_AT (NvDsObjectMeta, obj_user_meta_list, NVDS_AFTER_RECT (480));
NVDS_AT (NvDsClassifierMeta, unique_component_id, 44);
NVDS_AT (NvDsLabelInfo, result_label, 44);
NVDS_AT (NvDsUserMeta, user_meta_data, 40);
#if NVDS_ROTATION
NVDS_AT (NvOSD_RectParams, rotation_angle, 104);
#endif
_Static_assert (NVDS_EVENT_MSG_META == 9, "EVENT_MSG");
_Static_assert (NVDSINFER_TENSOR_OUTPUT_META == 12, "TENSOR_OUTPUT");
_Static_assert (NVDSINFER_SEGMENTATION_META == 13, "SEGMENTATION");
_Static_assert (NVDS_TRACKER_OBJ_REID_META == 17, "OBJ_REID");
_Static_assert (NVDS_START_USER_META == 8193, "START_USER");

void nvds_acquire_meta_lock (NvDsBatchMeta * batch);
void nvds_release_meta_lock (NvDsBatchMeta * batch);
NvDsBatchMeta *nvds_create_batch_meta (guint max_batch_size);
gboolean nvds_destroy_batch_meta (NvDsBatchMeta * batch);

NvDsFrameMeta *nvds_acquire_frame_meta_from_pool (NvDsBatchMeta * batch);
NvDsObjectMeta *nvds_acquire_obj_meta_from_pool (NvDsBatchMeta * batch);
NvDsClassifierMeta *nvds_acquire_classifier_meta_from_pool (NvDsBatchMeta * batch);
NvDsDisplayMeta *nvds_acquire_display_meta_from_pool (NvDsBatchMeta * batch);
NvDsLabelInfo *nvds_acquire_label_info_meta_from_pool (NvDsBatchMeta * batch);
NvDsUserMeta *nvds_acquire_user_meta_from_pool (NvDsBatchMeta * batch);

void nvds_add_frame_meta_to_batch (NvDsBatchMeta * batch, NvDsFrameMeta * frame);
void nvds_add_obj_meta_to_frame (NvDsFrameMeta * frame, NvDsObjectMeta * obj,
    NvDsObjectMeta * parent);
void nvds_add_classifier_meta_to_object (NvDsObjectMeta * obj, NvDsClassifierMeta * classifier);
void nvds_add_display_meta_to_frame (NvDsFrameMeta * frame, NvDsDisplayMeta * display);
void nvds_add_label_info_meta_to_classifier (NvDsClassifierMeta * classifier, NvDsLabelInfo * label);
void nvds_add_user_meta_to_batch (NvDsBatchMeta * batch, NvDsUserMeta * user);
void nvds_add_user_meta_to_frame (NvDsFrameMeta * frame, NvDsUserMeta * user);
void nvds_add_user_meta_to_obj (NvDsObjectMeta * obj, NvDsUserMeta * user);

void nvds_remove_frame_meta_from_batch (NvDsBatchMeta * batch, NvDsFrameMeta * frame);
void nvds_remove_obj_meta_from_frame (NvDsFrameMeta * frame, NvDsObjectMeta * obj);
void nvds_remove_classifier_meta_from_obj (NvDsObjectMeta * obj, NvDsClassifierMeta * classifier);
void nvds_remove_display_meta_from_frame (NvDsFrameMeta * frame, NvDsDisplayMeta * display);
void nvds_remove_label_info_meta_from_classifier (NvDsClassifierMeta * classifier,
    NvDsLabelInfo * label);
void nvds_remove_user_meta_from_batch (NvDsBatchMeta * batch, NvDsUserMeta * user);
void nvds_remove_user_meta_from_frame (NvDsFrameMeta * frame, NvDsUserMeta * user);
void nvds_remove_user_meta_from_object (NvDsObjectMeta * obj, NvDsUserMeta * user);

void nvds_clear_frame_meta_list (NvDsBatchMeta * batch, NvDsFrameMetaList * list);
void nvds_clear_obj_meta_list (NvDsFrameMeta * frame, NvDsObjectMetaList * list);
void nvds_clear_classifier_meta_list (NvDsObjectMeta * obj, NvDsClassifierMetaList * list);
void nvds_clear_label_info_meta_list (NvDsClassifierMeta * classifier, NvDsLabelInfoList * list);
void nvds_clear_display_meta_list (NvDsFrameMeta * frame, NvDisplayMetaList * list);
void nvds_clear_batch_user_meta_list (NvDsBatchMeta * batch, NvDsUserMetaList * list);
void nvds_clear_frame_user_meta_list (NvDsFrameMeta * frame, NvDsUserMetaList * list);
void nvds_clear_obj_user_meta_list (NvDsObjectMeta * obj, NvDsUserMetaList * list);

NvDsFrameMeta *nvds_get_nth_frame_meta (NvDsFrameMetaList * list, guint index);
NvDsMetaType nvds_get_user_meta_type (gchar * descriptor);
gboolean nvds_get_current_metadata_info (NvDsBatchMeta * batch);

gpointer nvds_batch_meta_copy_func (gpointer data, gpointer user_data);
void nvds_batch_meta_release_func (gpointer data, gpointer user_data);
void nvds_copy_frame_meta (NvDsFrameMeta * from, NvDsFrameMeta * to);
void nvds_copy_obj_meta (NvDsObjectMeta * from, NvDsObjectMeta * to);
void nvds_copy_classifier_meta (NvDsClassifierMeta * from, NvDsClassifierMeta * to);
void nvds_copy_label_info_meta (NvDsLabelInfo * from, NvDsLabelInfo * to);
void nvds_copy_display_meta (NvDsDisplayMeta * from, NvDsDisplayMeta * to);
void nvds_copy_frame_meta_list (NvDsFrameMetaList * from, NvDsBatchMeta * to);
void nvds_copy_obj_meta_list (NvDsObjectMetaList * from, NvDsFrameMeta * to);
void nvds_copy_classification_list (NvDsClassifierMetaList * from, NvDsObjectMeta * to);
void nvds_copy_label_info_list (NvDsLabelInfoList * from, NvDsClassifierMeta * to);
void nvds_copy_display_meta_list (NvDisplayMetaList * from, NvDsFrameMeta * to);
void nvds_copy_batch_user_meta_list (NvDsUserMetaList * from, NvDsBatchMeta * to);
void nvds_copy_frame_user_meta_list (NvDsUserMetaList * from, NvDsFrameMeta * to);
void nvds_copy_obj_user_meta_list (NvDsUserMetaList * from, NvDsObjectMeta * to);

/* Beyond the public functions: what tests read. Names of counters are in nvds_meta.c. */
guint64 nvds_standin_counter (const gchar * name, gint meta_type);
gchar *nvds_standin_counters (void);    /* one JSON object; free with nvds_standin_free */
void nvds_standin_free (gpointer text);
void nvds_standin_reset_counters (void);
void nvds_standin_set_poison (gboolean on);
gint nvds_standin_layout (void);        /* 1 with rotation_angle, 0 without */

#ifdef __cplusplus
}
#endif

#endif
