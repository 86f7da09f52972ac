#!/bin/sh
# One file through a TensorRT engine, tracked and drawn. Usage: one_stream.sh /path/to/video.mp4 yolo26s.engine
set -eu
video=$1 model=$2
tracker=${DEEPSTREAM_DIR:-/opt/nvidia/deepstream/deepstream}/lib/libnvds_nvmultiobjecttracker.so
exec gst-launch-1.0 -v nvstreammux name=m width=1280 height=720 batch-size=1 batched-push-timeout=33000 \
    ! pyinfer model="$model" confidence-threshold=0.25 \
    ! nvtracker ll-lib-file="$tracker" \
    ! nvdsosd ! fpsdisplaysink text-overlay=false video-sink=fakesink sync=false \
    uridecodebin uri="file://$video" ! m.sink_0
