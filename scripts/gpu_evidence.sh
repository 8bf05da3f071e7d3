#!/usr/bin/env bash
# Everything attnfix claims of a GPU, in one run: the GPU tests, the kernels against float64 with timings, what
# the final merge of MLA prefill reads, compute-sanitizer.
#   bash scripts/gpu_evidence.sh OUT        with attnfix installed beside a CUDA torch, pytest and hypothesis; about 10 minutes
# Writes OUT/summary.txt, OUT/gpu_kernels.json and OUT/gpu_prefill_merge.json: what docs/evidence holds.
set -uo pipefail
out=${1:?name a folder for the results}
mkdir -p "$out"
export PYTHONSAFEPATH=1 # the installed attnfix, not the source folder
{
    echo "pytest tests/gpu: $(python3 -m pytest tests/gpu -rs -p no:cacheprovider -o addopts= | grep -E '^(SKIPPED|=+ .*(passed|failed))' | tr -d = | sed 's/tests\/gpu.*py:[0-9]*//' | tr '\n' ' ')"
    python3 scripts/gpu_kernels.py --out "$out"
    python3 scripts/gpu_prefill_merge.py --out "$out"
    if command -v compute-sanitizer >/dev/null; then
        for tool in memcheck racecheck; do
            compute-sanitizer --tool "$tool" --error-exitcode 9 python3 -m pytest tests/gpu -q -p no:cacheprovider \
                -k "corrections or skewed or layouts" >"$out/$tool.log" 2>&1
            echo "compute-sanitizer $tool: exit $?,$(grep SUMMARY "$out/$tool.log" | tr -d =)"
        done
    fi
} | tee "$out/summary.txt"
