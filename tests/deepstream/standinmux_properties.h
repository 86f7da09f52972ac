/* SPDX-License-Identifier: Apache-2.0
 *
 * The GObject half of standinmux.c, which includes it. */

static guint *
uint_property (StandinMux * self, guint id)
{
  switch (id) {
    case PROP_BATCH_SIZE:
      return &self->batch_size;
    case PROP_FILL:
      return &self->fill;
    case PROP_WIDTH:
      return &self->width;
    case PROP_HEIGHT:
      return &self->height;
    case PROP_FRAMES_PER_SOURCE:
      return &self->frames_per_source;
    case PROP_GPU_ID:
      return &self->gpu_id;
    case PROP_COLOR_FORMAT:
      return &self->color_format;
    case PROP_SOURCE_ID_OFFSET:
      return &self->source_id_offset;
    default:
      return NULL;
  }
}

static gint *
enum_property (StandinMux * self, guint id)
{
  return id == PROP_MODE ? &self->mode : id == PROP_MEM_TYPE ? &self->mem_type : &self->fault;
}

static void
set_property (GObject * object, guint id, const GValue * value, GParamSpec * spec)
{
  guint *field = uint_property (SELF (object), id);
  (void) spec;
  if (field)
    *field = g_value_get_uint (value);
  else
    *enum_property (SELF (object), id) = g_value_get_enum (value);
}

static void
get_property (GObject * object, guint id, GValue * value, GParamSpec * spec)
{
  guint *field = uint_property (SELF (object), id);
  (void) spec;
  if (field)
    g_value_set_uint (value, *field);
  else
    g_value_set_enum (value, *enum_property (SELF (object), id));
}

static void
finalize (GObject * object)
{
  StandinMux *self = SELF (object);
  drop_pending (self);
  g_array_unref (self->pending);
  gst_object_unref (self->collect);
  G_OBJECT_CLASS (standin_mux_parent_class)->finalize (object);
}

static void
standin_mux_init (StandinMux * self)
{
  self->batch_size = self->frames_per_source = 1;
  self->mem_type = NVBUF_MEM_SYSTEM;
  self->pending = g_array_new (FALSE, FALSE, sizeof (Frame));
  self->collect = gst_collect_pads_new ();
  gst_collect_pads_set_function (self->collect, collected, self);
  gst_collect_pads_set_event_function (self->collect, sink_event, self);
  gst_collect_pads_set_query_function (self->collect, sink_query, self);
  self->src = gst_pad_new_from_static_template (&src_template, "src");
  gst_pad_use_fixed_caps (self->src);
  gst_element_add_pad (GST_ELEMENT (self), self->src);
}

static void
add_uint (GObjectClass * klass, guint id, const gchar * name, const gchar * blurb, guint minimum,
    guint fallback)
{
  g_object_class_install_property (klass, id, g_param_spec_uint (name, name, blurb, minimum,
          G_MAXINT, fallback, G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS));
}

static void
add_enum (GObjectClass * klass, guint id, const gchar * name, const gchar * blurb, GType type,
    gint fallback)
{
  g_object_class_install_property (klass, id, g_param_spec_enum (name, name, blurb, type, fallback,
          G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS));
}

static void
standin_mux_class_init (StandinMuxClass * klass)
{
  static const GEnumValue modes[] = {
    {MODE_LEGACY, "Scales, sets the pipeline size", "legacy"},
    {MODE_NEW, "Keeps each frame's size, pipeline size 0", "new"}, {0, NULL, NULL}
  };
  static const GEnumValue types[] = {
    {NVBUF_MEM_CUDA_PINNED, "Pinned", "pinned"}, {NVBUF_MEM_CUDA_DEVICE, "Device", "device"},
    {NVBUF_MEM_CUDA_UNIFIED, "Unified", "unified"},
    {NVBUF_MEM_SURFACE_ARRAY, "Surface array", "surface-array"},
    {NVBUF_MEM_SYSTEM, "System", "system"}, {0, NULL, NULL}
  };
  static const GEnumValue faults[] = {
    {FAULT_NONE, "None", "none"}, {FAULT_NO_META, "No batch meta", "no-meta"},
    {FAULT_SYSTEM_MEMORY, "Plain memory under NVMM caps", "system-memory"},
    {FAULT_SHORT_LIST, "Fewer surfaces than frames", "short-list"},
    {FAULT_EMPTY, "A batch without frames", "empty"}, {0, NULL, NULL}
  };
  GObjectClass *object = G_OBJECT_CLASS (klass);
  GstElementClass *element = GST_ELEMENT_CLASS (klass);
  object->set_property = set_property;
  object->get_property = get_property;
  object->finalize = finalize;
  add_uint (object, PROP_BATCH_SIZE, "batch-size", "Largest number of frames in a batch", 1, 1);
  add_uint (object, PROP_FILL, "fill", "Frames a batch really gets; 0: batch-size", 0, 0);
  add_uint (object, PROP_WIDTH, "width", "Width of the surfaces (legacy); 0: the frame's", 0, 0);
  add_uint (object, PROP_HEIGHT, "height", "Height of the surfaces (legacy); 0: the frame's", 0, 0);
  add_uint (object, PROP_FRAMES_PER_SOURCE, "frames-per-source",
      "Frames of one source in a batch", 1, 1);
  add_uint (object, PROP_GPU_ID, "gpu-id", "gpuId written to the surface", 0, 0);
  add_uint (object, PROP_COLOR_FORMAT, "color-format", "colorFormat; 0: from the caps", 0, 0);
  add_uint (object, PROP_SOURCE_ID_OFFSET, "source-id-offset", "source_id minus pad_index", 0, 0);
  add_enum (object, PROP_MODE, "mode", "Which nvstreammux to act as",
      register_enum ("StandinMuxMode", modes), MODE_LEGACY);
  add_enum (object, PROP_MEM_TYPE, "mem-type", "memType of the surface",
      register_enum ("StandinMuxMemType", types), NVBUF_MEM_SYSTEM);
  add_enum (object, PROP_FAULT, "fault", "What is wrong with each batch",
      register_enum ("StandinMuxFault", faults), FAULT_NONE);
  element->request_new_pad = request_pad;
  element->release_pad = release_pad;
  element->change_state = change_state;
  gst_element_class_add_static_pad_template (element, &sink_template);
  gst_element_class_add_static_pad_template (element, &src_template);
  gst_element_class_set_static_metadata (element, "Stand-in stream muxer", "Video/Muxer",
      "Makes NVMM batches in host memory", "gstinfer tests");
}
