#!/bin/sh
# RGB frames, reached through NVIDIA's Python bindings. Usage: rgb_pyservicemaker.sh /path/to/video.mp4 my_models:Yolo
set -eu
exec gst-launch-1.0 nvstreammux name=m width=1280 height=720 batch-size=1 batched-push-timeout=33000 \
    ! nvvideoconvert ! 'video/x-raw(memory:NVMM),format=RGB' \
    ! pyinfer model="$2" frame-access=pyservicemaker \
    ! fpsdisplaysink text-overlay=false video-sink=fakesink sync=false \
    uridecodebin uri="file://$1" ! m.sink_0
