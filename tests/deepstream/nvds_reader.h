/* SPDX-License-Identifier: Apache-2.0
 *
 * libnvds_reader: what the elements behind an inference element read, as one line of JSON a batch.
 * Returned text is freed with nvds_reader_free. */
#ifndef NVDS_READER_H
#define NVDS_READER_H

#include "nvdsgst_meta.h"

/* How the payload of a user meta is laid out, for types the reader cannot know */
typedef enum { PAYLOAD_OPAQUE, PAYLOAD_CSTRING, PAYLOAD_SIZE32, PAYLOAD_SIZE64 } PayloadKind;

typedef struct _NvdsReaderTracker NvdsReaderTracker;

void nvds_reader_set_payload (const gchar * descriptor, gint kind);
gchar *nvds_reader_dump (GstBuffer * buffer);
gchar *nvds_reader_dump_batch (NvDsBatchMeta * batch);
gchar *nvds_reader_osd (NvDsBatchMeta * batch, gboolean * ok);
gchar *nvds_reader_msgconv (NvDsBatchMeta * batch, gboolean * ok);
NvdsReaderTracker *nvds_reader_tracker_new (void);
void nvds_reader_tracker_free (NvdsReaderTracker * tracker);
void nvds_reader_tracker_event (NvdsReaderTracker * tracker, GstEvent * event);
gchar *nvds_reader_track (NvdsReaderTracker * tracker, NvDsBatchMeta * batch);
void nvds_reader_free (gpointer text);

/* Writing JSON: a comma is set before a member unless one opens */
void json_open (GString * out, const gchar * name, gchar bracket);
void json_close (GString * out, gchar bracket);
void json_int (GString * out, const gchar * name, gint64 value);
void json_uint (GString * out, const gchar * name, guint64 value);
void json_double (GString * out, const gchar * name, gdouble value);
void json_bool (GString * out, const gchar * name, gboolean value);
void json_string (GString * out, const gchar * name, const gchar * text, gssize length);
void json_problem (GString * out, const gchar * format, ...) G_GNUC_PRINTF (2, 3);

#endif
