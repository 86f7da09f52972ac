#!/bin/sh
# Ultralytics' own predictor on a TensorRT engine: it is given one letterboxed tensor a batch, on the GPU.
# Usage: ultralytics_engine.sh /path/to/video.mp4 yolo26s.engine
set -eu
exec gst-launch-1.0 nvstreammux name=m width=1280 height=720 batch-size=1 batched-push-timeout=33000 \
    ! pyinfer model="ultralytics:$2" \
    ! nvdsosd ! fpsdisplaysink text-overlay=false video-sink=fakesink sync=false \
    uridecodebin uri="file://$1" ! m.sink_0
