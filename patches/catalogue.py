"""Every fix of both engines, for tools. Each engine has a catalogue of its own: a process that serves imports no other."""

from attnfix.patches.sglang.catalogue import FIXES as OF_SGLANG
from attnfix.patches.vllm.catalogue import FIXES as OF_VLLM

FIXES = OF_SGLANG + OF_VLLM
BY_ID = {fix.id: fix for fix in FIXES}
