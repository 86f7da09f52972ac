/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>
#include "nvds_reader.h"

static void
name_of (GString * out, const gchar * name)
{
  gchar last = out->len ? out->str[out->len - 1] : 0;
  if (out->len && last != '{' && last != '[')
    g_string_append (out, ", ");
  if (name)
    g_string_append_printf (out, "\"%s\": ", name);
}

void
json_open (GString * out, const gchar * name, gchar bracket)
{
  name_of (out, name);
  g_string_append_c (out, bracket);
}

void
json_close (GString * out, gchar bracket)
{
  g_string_append_c (out, bracket);
}

void
json_int (GString * out, const gchar * name, gint64 value)
{
  name_of (out, name);
  g_string_append_printf (out, "%" G_GINT64_FORMAT, value);
}

void
json_uint (GString * out, const gchar * name, guint64 value)
{
  name_of (out, name);
  g_string_append_printf (out, "%" G_GUINT64_FORMAT, value);
}

void
json_double (GString * out, const gchar * name, gdouble value)
{
  gchar text[G_ASCII_DTOSTR_BUF_SIZE];
  name_of (out, name);
  if (isfinite (value))
    g_string_append (out, g_ascii_formatd (text, sizeof text, "%.7g", value));
  else
    g_string_append (out, isnan (value) ? "\"nan\"" : value > 0 ? "\"inf\"" : "\"-inf\"");
}

void
json_bool (GString * out, const gchar * name, gboolean value)
{
  name_of (out, name);
  g_string_append (out, value ? "true" : "false");
}

/* length < 0: NUL-terminated. Bytes that are no UTF-8 come out as \udcXX, as Python's
 * surrogateescape has them, so that a reader can tell. */
void
json_string (GString * out, const gchar * name, const gchar * text, gssize length)
{
  const gchar *at, *end;
  name_of (out, name);
  if (!text) {
    g_string_append (out, "null");
    return;
  }
  end = text + (length < 0 ? (gssize) strlen (text) : length);
  g_string_append_c (out, '"');
  for (at = text; at < end;) {
    gunichar c = g_utf8_get_char_validated (at, end - at);
    guchar byte = (guchar) * at;
    if (c == (gunichar) - 1 || c == (gunichar) - 2) {
      g_string_append_printf (out, "\\udc%02x", byte);
      at++;
      continue;
    }
    if (byte == '"' || byte == '\\')
      g_string_append_printf (out, "\\%c", byte);
    else if (byte < 0x20)
      g_string_append_printf (out, "\\u%04x", byte);
    else
      g_string_append_len (out, at, g_utf8_skip[byte]);
    at += g_utf8_skip[byte];
  }
  g_string_append_c (out, '"');
}

void
json_problem (GString * out, const gchar * format, ...)
{
  va_list args;
  gchar *text;
  va_start (args, format);
  text = g_strdup_vprintf (format, args);
  va_end (args);
  json_string (out, NULL, text, -1);
  g_free (text);
}

void
nvds_reader_free (gpointer text)
{
  g_free (text);
}
