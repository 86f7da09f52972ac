#!/bin/sh
# Four files in one batch: one model, tracker, tiler, display and messages.
# Usage: four_streams.sh MODEL VIDEO1 VIDEO2 VIDEO3 VIDEO4 "host;port;topic"
set -eu
model=$1 a=$2 b=$3 c=$4 d=$5 broker=$6
sdk=${DEEPSTREAM_DIR:-/opt/nvidia/deepstream/deepstream}
exec gst-launch-1.0 nvstreammux name=m width=1280 height=720 batch-size=4 batched-push-timeout=40000 \
    ! pyinfer model="$model" frames-in-flight=2 \
    ! nvtracker ll-lib-file="$sdk/lib/libnvds_nvmultiobjecttracker.so" \
    ! tee name=t \
    t. ! queue ! nvmultistreamtiler rows=2 columns=2 width=1920 height=1080 ! nvdsosd ! nveglglessink sync=false \
    t. ! queue ! nvmsgconv config=msgconv.txt payload-type=1 \
    ! nvmsgbroker proto-lib="$sdk/lib/libnvds_kafka_proto.so" conn-str="$broker" sync=false \
    uridecodebin uri="file://$a" ! m.sink_0  uridecodebin uri="file://$b" ! m.sink_1 \
    uridecodebin uri="file://$c" ! m.sink_2  uridecodebin uri="file://$d" ! m.sink_3
