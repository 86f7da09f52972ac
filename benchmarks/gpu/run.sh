#!/usr/bin/env bash
# Builds, checks and times on a bare GPU machine: run.sh BUNDLE [PART ...]     (parts: test correct overlay cli speed product context beside steps onnx)
# BUNDLE is a folder with GStreamer, PyGObject and wheels whose env.sh sets the paths, and a clip, see README.md.
set -uo pipefail
bundle=$1; shift
source "$bundle/env.sh"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
site=${TMPDIR:-/tmp}/gstinfer-site
python3 - "$here/../.." "$site" <<'PY'
import pathlib, sys, tomllib
root, site = map(pathlib.Path, sys.argv[1:])
project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
info = site / "gstinfer-0.dist-info"
info.mkdir(parents=True, exist_ok=True)
(info / "METADATA").write_text("Metadata-Version: 2.1\nName: gstinfer\nVersion: 0\n")
groups = project.get("entry-points", {})
(info / "entry_points.txt").write_text(
    "\n".join(f"[{g}]\n" + "\n".join(f"{k} = {v}" for k, v in names.items()) for g, names in groups.items()) + "\n")
PY
export PYTHONPATH=$here/../../src:$site:$here:${PYTHONPATH:-} YOLO_OFFLINE=1 YOLO_CONFIG_DIR=${TMPDIR:-/tmp}
export BENCH_CLIP=${BENCH_CLIP:-${TMPDIR:-/tmp}/clip.h264}
if [ -f "$bundle/clip.h264" ] && [ ! -f "$BENCH_CLIP" ]; then for _ in $(seq "${BENCH_LOOPS:-20}"); do cat "$bundle/clip.h264"; done >"$BENCH_CLIP"; fi
limit="timeout -k 5 ${PART_LIMIT:-240}"
for part in "$@"; do
    echo "== $part"
    case $part in
        test) (cd "$here/../.." && GSTINFER_REQUIRE_CUDA=1 $limit python3 -m pytest -q -p no:cacheprovider -m cuda tests/preprocess/test_cuda.py tests/models/test_torch.py tests/overlay/test_cuda_overlay.py) ;;
        correct) $limit python3 "$here/correct.py" ${CORRECT_OPTIONS:-} ;;
        context) BENCH_CONTEXT=own $limit python3 "$here/correct.py" ${CORRECT_OPTIONS:-}
            BENCH_CONTEXT=own $limit python3 "$here/speed.py" --parts decode,full ${SPEED_OPTIONS:-} ;;
        overlay) $limit python3 "$here/overlay.py" ${OVERLAY_OPTIONS:-} ;;
        cli) $limit python3 "$here/run_cli.py" ${CLI_OPTIONS:-} ;;
        beside) $limit python3 "$here/beside.py" ${BESIDE_OPTIONS:-} ;;
        steps) $limit python3 "$here/steps.py" ${STEPS_OPTIONS:-} ;;
        product) $limit python3 "$here/product.py" ${PRODUCT_OPTIONS:-} ;;
        onnx) $limit python3 "$here/onnx_cuda.py" ${ONNX_OPTIONS:-} ;;
        speed) $limit python3 "$here/speed.py" ${SPEED_OPTIONS:-} ;;
    esac
done
