"""A camera for tests: an RTSP server in a process of its own, so that it can be killed.

    /usr/bin/python3 rtsp_server.py PORT NAME PATTERN [USER:PASSWORD]
"""

from __future__ import annotations

import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer


def main(port: str, name: str, pattern: str, login: str = "") -> None:
    Gst.init(None)
    server = GstRtspServer.RTSPServer.new()
    server.set_address("127.0.0.1")
    server.set_service(port)
    factory = GstRtspServer.RTSPMediaFactory.new()
    factory.set_launch(
        f"( videotestsrc is-live=true pattern={pattern} ! video/x-raw,width=128,height=96,framerate=20/1 ! "
        "x264enc tune=zerolatency speed-preset=ultrafast key-int-max=10 ! rtph264pay name=pay0 pt=96 config-interval=-1 )"
    )
    factory.set_shared(True)
    if login:
        user, _, password = login.partition(":")
        auth = GstRtspServer.RTSPAuth.new()
        token = GstRtspServer.RTSPToken.new()
        token.set_string("media.factory.role", "user")
        auth.add_basic(GstRtspServer.RTSPAuth.make_basic(user, password), token)
        server.set_auth(auth)
        role = "user, media.factory.access=true, media.factory.construct=true"
        factory.add_role_from_structure(Gst.Structure.from_string(role)[0])
    server.get_mount_points().add_factory(f"/{name}", factory)
    if server.attach(None) == 0:
        sys.exit(f"port {port} is taken")
    print("ready", flush=True)
    GLib.MainLoop().run()


if __name__ == "__main__":
    main(*sys.argv[1:])
