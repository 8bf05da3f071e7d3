#!/usr/bin/env bash
# Everything attnfix claims of its kernels, on one GPU: the GPU tests with 10,000 random cases and 200,000 launches from 8
# threads; speed beside the engines' own kernels; compute-sanitizer.
#   python -m scripts.bench.kernels --fetch PEERS         once, where there is a network
#   bash scripts/bench/gpu_evidence.sh OUT PEERS [tests] [speed] [sanitizer]      all three if none is named; about 10 minutes
# with attnfix installed beside a CUDA torch, pytest, hypothesis and nvcc. Writes OUT/<part>.txt and the JSON files of the
# scripts: what docs/evidence holds.
set -uo pipefail
out=${1:?name a folder for the results} peers=${2:?name the folder that scripts.bench.kernels --fetch wrote}
shift 2
mkdir -p "$out"

tests() {
    ATTNFIX_GPU_CASES=10000 ATTNFIX_GPU_LAUNCHES=200000 python3 -m pytest tests/gpu --ignore tests/gpu/serving -rs -p no:cacheprovider -o addopts= \
        --durations=3 | grep -E '^(SKIPPED|FAILED|=+ .*(passed|failed)|[0-9.]+s call)' | sed 's/tests\/gpu.*py:[0-9]*//'
}
speed() {
    python3 -m scripts.bench.kernels --peers "$peers" --out "$out" --goals
}
sanitizer() {
    for tool in memcheck racecheck; do
        compute-sanitizer --tool "$tool" --error-exitcode 9 python3 -m pytest tests/gpu --ignore tests/gpu/serving -q -p no:cacheprovider -o addopts= \
            -k "corrections or skewed or layouts or repeated" >"/tmp/$tool.log" 2>&1
        echo "compute-sanitizer $tool: exit $?,$(grep SUMMARY "/tmp/$tool.log" | tr -d =)"
    done
}
for part in "${@:-tests speed sanitizer}"; do
    for name in $part; do "$name" | tee "$out/$name.txt"; done
done
