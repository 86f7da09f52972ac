/* SPDX-License-Identifier: Apache-2.0 */
#include "gststandin.h"

#define PACKAGE "gstinfer"

static gboolean
plugin_init (GstPlugin * plugin)
{
  return gst_element_register (plugin, "standinmux", GST_RANK_NONE, standin_mux_get_type ())
      && gst_element_register (plugin, "standindetector", GST_RANK_NONE,
      standin_detector_get_type ())
      && standin_readers_register (plugin);
}

GST_PLUGIN_DEFINE (GST_VERSION_MAJOR, GST_VERSION_MINOR, standin, "DeepStream stand-in for tests",
    plugin_init, "1.0", "unknown", "gstinfer", "gstinfer")
