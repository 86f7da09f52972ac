/* SPDX-License-Identifier: Apache-2.0
 *
 * standinprobe, standintracker, standinosd and standinmsgconv: transforms that hand each batch to
 * libnvds_reader and write its answer, one line of JSON each, to `location` or stdout. */
#include "gststandin.h"
#include <errno.h>
#include <gst/base/gstbasetransform.h>
#include <string.h>
#include "nvds_reader.h"

enum { KIND_PROBE, KIND_TRACKER, KIND_OSD, KIND_MSGCONV };
enum { PROP_0, PROP_LOCATION, PROP_PAYLOAD, PROP_COPY, PROP_DUMP };

typedef struct
{
  GstBaseTransform transform;
  gchar *location, *payload;
  gboolean copy, dump;
  FILE *file;
  NvdsReaderTracker *tracker;
} StandinReader;

typedef struct
{
  GstBaseTransformClass parent;
  gint kind;
} StandinReaderClass;

GType standin_reader_get_type (void);
G_DEFINE_ABSTRACT_TYPE (StandinReader, standin_reader, GST_TYPE_BASE_TRANSFORM)
#define SELF(object) ((StandinReader *) (object))
#define KIND(self) (((StandinReaderClass *) G_OBJECT_GET_CLASS (self))->kind)

static GstStaticPadTemplate any_sink = GST_STATIC_PAD_TEMPLATE ("sink", GST_PAD_SINK,
    GST_PAD_ALWAYS, GST_STATIC_CAPS_ANY);
static GstStaticPadTemplate any_src = GST_STATIC_PAD_TEMPLATE ("src", GST_PAD_SRC,
    GST_PAD_ALWAYS, GST_STATIC_CAPS_ANY);

static void
write_line (StandinReader * self, gchar * text)
{
  FILE *file = self->file ? self->file : stdout;
  fprintf (file, "%s\n", text);
  fflush (file);
  nvds_reader_free (text);
}

static gboolean
start (GstBaseTransform * transform)
{
  static const gchar *const kinds[] = { "opaque", "cstring", "size32", "size64" };
  StandinReader *self = SELF (transform);
  gchar **parts = self->payload ? g_strsplit (self->payload, ":", 2) : NULL;
  if (parts && parts[0] && parts[1])
    for (guint i = 0; i < G_N_ELEMENTS (kinds); i++)
      if (!strcmp (parts[1], kinds[i]))
        nvds_reader_set_payload (parts[0], (gint) i);
  g_strfreev (parts);
  if (KIND (self) == KIND_TRACKER)
    self->tracker = nvds_reader_tracker_new ();
  if (self->location && !(self->file = fopen (self->location, "w"))) {
    GST_ELEMENT_ERROR (self, RESOURCE, OPEN_WRITE, ("%s: %s", self->location, g_strerror (errno)),
        (NULL));
    return FALSE;
  }
  return TRUE;
}

static gboolean
stop (GstBaseTransform * transform)
{
  StandinReader *self = SELF (transform);
  if (KIND (self) == KIND_PROBE) {
    gchar *counters = nvds_standin_counters ();
    write_line (self, g_strdup_printf ("{\"kind\": \"counters\", \"counters\": %s}", counters));
    nvds_standin_free (counters);
  }
  g_clear_pointer (&self->file, fclose);
  g_clear_pointer (&self->tracker, nvds_reader_tracker_free);
  return TRUE;
}

static gboolean
sink_event (GstBaseTransform * transform, GstEvent * event)
{
  StandinReader *self = SELF (transform);
  guint number = (guint) GST_EVENT_TYPE (event) >> GST_EVENT_NUM_SHIFT, source = 0;
  const GstStructure *s = gst_event_get_structure (event);
  if (self->tracker)
    nvds_reader_tracker_event (self->tracker, event);
  if (KIND (self) == KIND_PROBE && number >= 400 && number <= 406) {
    gst_structure_get_uint (s, "source-id", &source);
    write_line (self, g_strdup_printf ("{\"kind\": \"event\", \"number\": %u, \"source_id\": %u}",
            number, source));
  } else if (KIND (self) == KIND_PROBE && GST_EVENT_TYPE (event) == GST_EVENT_EOS) {
    write_line (self, g_strdup ("{\"kind\": \"eos\"}"));
  }
  return GST_BASE_TRANSFORM_CLASS (standin_reader_parent_class)->sink_event (transform, event);
}

static GstFlowReturn
transform_ip (GstBaseTransform * transform, GstBuffer * buffer)
{
  StandinReader *self = SELF (transform);
  NvDsBatchMeta *batch = gst_buffer_get_nvds_batch_meta (buffer);
  gboolean ok = TRUE;
  if (KIND (self) == KIND_PROBE) {
    if (self->dump)
      write_line (self, nvds_reader_dump (buffer));
    if (self->copy) {
      GstBuffer *copy = gst_buffer_copy (buffer);
      gchar *text = nvds_reader_dump (copy);
      write_line (self, g_strdup_printf ("{\"kind\": \"copy\", \"of\": %s}", text));
      nvds_reader_free (text);
      gst_buffer_unref (copy);
    }
  } else if (batch && KIND (self) == KIND_TRACKER) {
    write_line (self, nvds_reader_track (self->tracker, batch));
  } else if (batch && KIND (self) == KIND_OSD) {
    write_line (self, nvds_reader_osd (batch, &ok));
    if (!ok) {
      GST_ELEMENT_ERROR (self, RESOURCE, FAILED, ("Unable to draw rectangles"), (NULL));
      return GST_FLOW_ERROR;
    }
  } else if (batch) {
    write_line (self, nvds_reader_msgconv (batch, &ok));
  }
  return GST_FLOW_OK;
}

static void
set_property (GObject * object, guint id, const GValue * value, GParamSpec * spec)
{
  StandinReader *self = SELF (object);
  if (id == PROP_COPY || id == PROP_DUMP) {
    *(id == PROP_COPY ? &self->copy : &self->dump) = g_value_get_boolean (value);
  } else {
    gchar **field = id == PROP_LOCATION ? &self->location : &self->payload;
    g_free (*field);
    *field = g_value_dup_string (value);
  }
  (void) spec;
}

static void
get_property (GObject * object, guint id, GValue * value, GParamSpec * spec)
{
  StandinReader *self = SELF (object);
  if (id == PROP_COPY || id == PROP_DUMP)
    g_value_set_boolean (value, id == PROP_COPY ? self->copy : self->dump);
  else
    g_value_set_string (value, id == PROP_LOCATION ? self->location : self->payload);
  (void) spec;
}

static void
finalize (GObject * object)
{
  g_free (SELF (object)->location);
  g_free (SELF (object)->payload);
  G_OBJECT_CLASS (standin_reader_parent_class)->finalize (object);
}

static void
standin_reader_init (StandinReader * self)
{
  self->dump = TRUE;
  gst_base_transform_set_in_place (GST_BASE_TRANSFORM (self), TRUE);
  gst_base_transform_set_passthrough (GST_BASE_TRANSFORM (self), TRUE);
}

static void
standin_reader_class_init (StandinReaderClass * klass)
{
  GObjectClass *object = G_OBJECT_CLASS (klass);
  GstElementClass *element = GST_ELEMENT_CLASS (klass);
  GstBaseTransformClass *transform = GST_BASE_TRANSFORM_CLASS (klass);
  const GParamFlags flags = G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS;
  object->set_property = set_property;
  object->get_property = get_property;
  object->finalize = finalize;
  transform->start = start;
  transform->stop = stop;
  transform->sink_event = sink_event;
  transform->transform_ip = transform_ip;
  g_object_class_install_property (object, PROP_LOCATION, g_param_spec_string ("location",
          "location", "File the lines go to; none: stdout", NULL, flags));
  g_object_class_install_property (object, PROP_PAYLOAD, g_param_spec_string ("payload", "payload",
          "DESCRIPTOR:cstring|size32|size64, how a user meta's payload is laid out", NULL, flags));
  g_object_class_install_property (object, PROP_COPY, g_param_spec_boolean ("copy", "copy",
          "Dump a copy of each buffer as well (probe)", FALSE, flags));
  g_object_class_install_property (object, PROP_DUMP, g_param_spec_boolean ("dump", "dump",
          "Dump each buffer (probe)", TRUE, flags));
  gst_element_class_add_static_pad_template (element, &any_sink);
  gst_element_class_add_static_pad_template (element, &any_src);
}

#define READER(Name, name, value, title) \
  typedef StandinReader Name; \
  typedef StandinReaderClass Name##Class; \
  GType name##_get_type (void); \
  G_DEFINE_TYPE (Name, name, standin_reader_get_type ()) \
  static void name##_init (Name * self) { (void) self; } \
  static void name##_class_init (Name##Class * klass) { \
    klass->kind = value; \
    gst_element_class_set_static_metadata (GST_ELEMENT_CLASS (klass), title, "Analyzer", title, \
        "gstinfer tests"); \
  }

READER (StandinProbe, standin_probe, KIND_PROBE, "Dumps every field of a batch")
READER (StandinTracker, standin_tracker, KIND_TRACKER, "Acts as a tracker")
READER (StandinOsd, standin_osd, KIND_OSD, "Checks what an on-screen display draws")
READER (StandinMsgconv, standin_msgconv, KIND_MSGCONV, "Checks what a message converter sends")

gboolean
standin_readers_register (GstPlugin * plugin)
{
  return gst_element_register (plugin, "standinprobe", GST_RANK_NONE, standin_probe_get_type ())
      && gst_element_register (plugin, "standintracker", GST_RANK_NONE,
      standin_tracker_get_type ())
      && gst_element_register (plugin, "standinosd", GST_RANK_NONE, standin_osd_get_type ())
      && gst_element_register (plugin, "standinmsgconv", GST_RANK_NONE,
      standin_msgconv_get_type ());
}
