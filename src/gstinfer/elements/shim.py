"""The two generated files that lead GStreamer's Python loader to the environment this package is installed in.

The loader embeds the distribution's own Python and imports every ``*.py`` of ``~/.gstreamer-1.0/plugins/python`` (and
of ``python/`` in each folder of ``GST_PLUGIN_PATH``) in no particular order, with that folder first on ``sys.path``.
So ``gstinfer_elements.py`` publishes our elements there, and the package ``gstinfer/`` beside it, which the loader does
not scan, makes ``import gstinfer`` work in every plugin file, whichever comes first.
"""

from __future__ import annotations

from typing import Any

__all__ = ["BOOTSTRAP", "MARK", "PLUGIN", "bootstrap_text", "plugin_text", "publish"]

PLUGIN = "gstinfer_elements.py"
"""Name of the plugin file that the loader scans."""

BOOTSTRAP = "gstinfer/__init__.py"
"""Name of the file beside it that stands in for the installed package."""

MARK = "Written by `gstinfer setup`; do not edit."
"""What the first line of both files says, so that nothing else is ever overwritten or removed."""

_PLUGIN_TEXT = '''"""{mark} Makes the elements of gstinfer known to GStreamer."""
import sys

try:
    from gstinfer.elements.shim import publish

    __gstelementfactory__ = publish()
except BaseException as error:
    text = " ".join(str(error).split()) or type(error).__name__
    print("gstinfer: its elements are not available: %s; run: gstinfer doctor" % text, file=sys.stderr)
'''

_BOOTSTRAP_TEXT = '''"""{mark} Leads `import gstinfer` to the environment it is installed in."""
import importlib
import os
import site
import sys

SITE = {site!r}
PYTHON = {python!r}

running = "%d.%d" % sys.version_info[:2]
if running != PYTHON:
    raise ImportError("this is Python %s, gstinfer is installed for Python %s in %s" % (running, PYTHON, SITE))
if not os.path.isdir(SITE):
    raise ImportError("the environment %s is gone" % SITE)

if SITE not in sys.path:
    before = list(sys.path)
    site.addsitedir(SITE)
    added = [p for p in sys.path if p not in before]
    # Packages of the environment come before those of the distribution.
    at = next((i for i, p in enumerate(before) if p.endswith(("dist-packages", "site-packages"))), len(before))
    sys.path[:] = before[:at] + added + before[at:]

whole = list(sys.path)
sys.path[:] = [p for p in whole if not os.path.exists(os.path.join(p, "{plugin}"))]
del sys.modules[__name__]
try:
    importlib.import_module(__name__)
except ModuleNotFoundError as error:
    if error.name == __name__:
        raise ImportError("gstinfer is no longer installed in %s" % SITE) from None
    raise
finally:
    sys.path[:] = whole
'''


def plugin_text() -> str:
    """Text of ``PLUGIN``. It never raises: a failure is one line on stderr, and other elements stay as they are."""
    return _PLUGIN_TEXT.format(mark=MARK)


def bootstrap_text(site: str, python: str) -> str:
    """Text of ``BOOTSTRAP``.

    Args:
        site: The site-packages folder that this package is installed in.
        python: Minor version of its Python, such as ``"3.11"``.
    """
    return _BOOTSTRAP_TEXT.format(mark=MARK, site=site, python=python, plugin=PLUGIN)


def publish() -> tuple[str, int, Any]:
    """Registers the elements with the plugin that is being loaded.

    Returns:
        The first element's ``(name, rank, class)``, which the loader registers itself.
    """
    from gstinfer.elements import factories
    from gstinfer.elements.compat import register_factory

    first, *others = factories()
    for name, rank, element in others:
        register_factory(name, rank, element)
    return first
