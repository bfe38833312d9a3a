#!/usr/bin/env python3
"""A policy as a program, for --policy "exec:python3 python/examples/keep_most.py".

Keeps what outlives the training step, and frees all else after the last op that touches it.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from superneurons.plans import Plan, Step, format_plan, read_request  # noqa: E402
from superneurons.traces import trace_hash  # noqa: E402

request = read_request()
trace = request.trace
last = {access.tensor: i for i, op in enumerate(trace.ops) for access in op.reads + op.writes}
plan = Plan(trace_hash(trace), request.budget, "keep_most", request.allocator)
for carry in trace.carry:
    plan.begin.append("device")  # at home there, before and after
    if carry.start != carry.end and carry.start not in last:
        plan.steps.append(Step("free", carry.start))  # no op will, and `end` takes over its home
for carry in trace.carry:
    last.pop(carry.end, None)
for i, op in enumerate(trace.ops):
    plan.steps.append(Step("run", i, op.recorded))
    for tensor in sorted({access.tensor for access in op.reads + op.writes}):
        if last.get(tensor) == i:
            plan.steps.append(Step("free", tensor))
sys.stdout.write(format_plan(plan))
