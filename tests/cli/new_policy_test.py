"""A new policy is one file, its declaration and one row (CONTRIBUTING.md): done here in a scratch
copy of policies/, and the conformance suite takes it from there.

Only the new file and the registry are compiled; all else comes from the build that is tested. It
takes some seconds.
"""

import json
import re
import shlex
import shutil
import subprocess

import pytest
from conftest import PROGRAM, ROOT

NAME = "reverse_frees"
SOURCE = f"""
#include <algorithm>

#include "policies/passes.h"

namespace superneurons {{

/// What is still there at the end is freed in the reverse order.
Result<Plan> {NAME}(const PolicyContext&, const Plan& incoming) {{
  Plan plan = incoming;
  auto first = plan.steps.end();
  while (first != plan.steps.begin() && std::prev(first)->kind == StepKind::free) --first;
  std::reverse(first, plan.steps.end());
  return plan;
}}

}}  // namespace superneurons
"""
DECLARATION = f"Result<Plan> {NAME}(const PolicyContext& context, const Plan& incoming);\n\n"
ROW = f'{{"{NAME}", "frees in the reverse order at the end", {{}}, {{}}, {NAME}}},\n      '


def sh(command, folder, timeout=300):
    done = subprocess.run(
        ["sh", "-c", command], cwd=folder, capture_output=True, text=True, timeout=timeout,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout[-3000:]
    return done.stdout


def insert(file, before, text):
    old = file.read_text()
    assert old.count(before) == 1, before
    file.write_text(old.replace(before, text + before))


def compile_into(build, source, include, output):
    """Compiles as the build does, with `include` searched first."""
    entries = json.loads((build / "compile_commands.json").read_text())
    words = next(
        shlex.split(entry["command"])
        for entry in entries
        if entry["file"].endswith("policies/registry.cpp")
    )
    words[words.index("-o") + 1], words[words.index("-c") + 1] = str(output), str(source)
    words.insert(words.index("-o"), f"-I{include}")
    roots = [word for word in words if word == f"-I{ROOT}"]
    words = [word for word in words if word not in roots] + roots
    sh(shlex.join(words), build)


def link_with(build, target, objects, output):
    """Links as the build does; objects that come first stand in for those of the libraries."""
    line = sh(f"ninja -t commands {target}", build).splitlines()[-1]
    link = re.sub(r"^: && ", "", line).split(" && ")[0]
    link = re.sub(r" -o \S+", f" {shlex.join(map(str, objects))} -o {shlex.quote(str(output))}", link)
    sh(link, build)


def test_a_new_policy_is_covered_by_the_conformance_suite(tmp_path, chain):
    build = PROGRAM.parent
    if not (build / "tests" / "test_policies").exists():
        pytest.skip("test_policies is not built beside the program")
    shutil.copytree(ROOT / "policies", tmp_path / "policies")
    (tmp_path / "policies" / f"{NAME}.cpp").write_text(SOURCE)
    insert(tmp_path / "policies" / "passes.h", "}  // namespace superneurons", DECLARATION)
    insert(tmp_path / "policies" / "registry.cpp", 'PolicyEntry{"recorded"', "PolicyEntry" + ROW)

    objects = [tmp_path / f"{NAME}.o", tmp_path / "registry.o"]
    for source, output in zip((NAME, "registry"), objects, strict=True):
        compile_into(build, tmp_path / "policies" / f"{source}.cpp", tmp_path, output)
    suite, program = tmp_path / "test_policies", tmp_path / "superneurons"
    link_with(build, "test_policies", objects, suite)
    link_with(build, "superneurons", objects, program)

    found = sh(f"{suite} --gtest_filter='Registry.*:*{NAME}*'", ROOT)
    passed = re.search(r"\[  PASSED  \] (\d+) tests", found)
    assert passed and int(passed[1]) >= 5, found
    assert NAME in sh(f"'{program}' policies", tmp_path)
    assert '"run":11' in sh(f"'{program}' plan '{chain}' --policy {NAME}", tmp_path)
