/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GST_STANDIN_H
#define GST_STANDIN_H

#include <gst/gst.h>
#include <stdio.h>

GType standin_mux_get_type (void);
GType standin_detector_get_type (void);
gboolean standin_readers_register (GstPlugin * plugin);

#endif
