"""Triton's interpreter made faster gives the same, and a fork finds what an earlier one has rewritten."""

import os
import subprocess
import sys

KERNELS = """
import triton, triton.language as tl

@triton.jit
def doubled(x):
    return tl.where(x > 2, 2 * x, tl.sum(tl.exp(x), 0))

@triton.jit
def kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(out + at, doubled(value) + tl.cdiv(n, BLOCK), mask=at < n)
"""
PROGRAM = """
import sys, torch
from tests.differential import interpreter
if sys.argv[1] == "fast":
    interpreter.speed_up()
import kernels_here
for _ in range(3):
    x = torch.linspace(-3, 9, 37)
    out = torch.zeros(37)
    kernels_here.kernel[(5,)](x, out, 37, BLOCK=8)
print(out.tolist())
if sys.argv[1] == "fast":
    names = interpreter.rewritten()
    assert names == {("kernels_here", "kernel"), ("kernels_here", "doubled"), *(n for n in names if n[0] != "kernels_here")}
    from triton.runtime.interpreter import InterpretedFunction
    InterpretedFunction.rewritten_fn.clear()
    interpreter.rewrite(names)
    assert interpreter.rewritten() == names
"""


def test_the_faster_interpreter_gives_the_same_and_rewrites_by_name(tmp_path):
    (tmp_path / "kernels_here.py").write_text(KERNELS)
    said = []
    for how in ("plain", "fast"):
        environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.getcwd()}"}
        ran = subprocess.run([sys.executable, "-c", PROGRAM, how], env=environment, capture_output=True, text=True, timeout=600)
        assert not ran.returncode, ran.stderr
        said.append(ran.stdout)
    assert said[0] == said[1] and said[0].startswith("[")
