"""Who may include whom: every #include is read, and an upward one fails.

    ir <- memory <- policies
    ir <- networks
    ir, memory <- simulator <- replay
    tracer: it runs networks on the replay's backends
    cli, tests, bench <- all
"""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAY_INCLUDE = {
    "ir": set(),
    "memory": {"ir"},
    "policies": {"ir", "memory"},
    "networks": {"ir"},
    "simulator": {"ir", "memory"},
    "replay": {"ir", "memory", "simulator"},
    "tracer": {"ir", "memory", "networks", "simulator", "replay"},
}
LONGEST_FILE = 400  # lines; what outgrows it has two subjects
LONGEST_SCRIPT = 500  # of Python
NO_CUDA = re.compile(r"#include <(cuda|cudnn|cublas|cupti)")


def sources():
    listed = subprocess.run(
        ["git", "ls-files", "*.h", "*.cpp", "*.cu", "*.cuh", "*.py"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    ).stdout.split()  # fmt: skip
    files = listed or [
        str(path.relative_to(ROOT))
        for folder in [*MAY_INCLUDE, "cli", "tests", "bench", "python"]
        for path in (ROOT / folder).rglob("*.*")
        if path.suffix in {".h", ".cpp", ".cu", ".cuh", ".py"}
    ]
    return [file for file in files if (ROOT / file).exists()]


def upward(file, text):
    """Includes of that file's text that its folder must not have."""
    folder = file.split("/")[0]
    if folder not in MAY_INCLUDE:
        return []
    allowed = MAY_INCLUDE[folder] | {folder}
    named = re.findall(r'^#\s*include\s+"([^"]+)"', text, re.MULTILINE)
    return [name for name in named if name.split("/")[0] not in allowed]


def test_no_upward_include():
    found = {file: upward(file, (ROOT / file).read_text()) for file in sources()}
    assert len([file for file in found if file.endswith((".h", ".cpp"))]) > 100
    assert {file: names for file, names in found.items() if names} == {}


def test_the_rule_can_fail():
    assert upward("policies/x.cpp", '#include "simulator/outcome.h"\n') == ["simulator/outcome.h"]
    assert upward("ir/x.cpp", '#  include "memory/placement.h"\n') == ["memory/placement.h"]
    assert upward("simulator/x.cpp", '#include "ir/plan.h"\n') == []


def test_cuda_stays_in_its_folders():
    """All else builds and runs without CUDA; the command line asks only whether there is a GPU."""
    homes = ("replay/cuda/", "tracer/cuda/", "tests/cuda/", "tests/fake_cupti/", "cli/cuda.cpp")
    for file in sources():
        if file.startswith(homes) or file.endswith(".py"):
            continue
        text = re.sub(r"#ifdef SUPERNEURONS_CUDA\n.*?#endif", "", (ROOT / file).read_text(), flags=re.S)
        assert not NO_CUDA.search(text), file


def test_no_file_is_too_long():
    lengths = {file: len((ROOT / file).read_text().splitlines()) for file in sources()}
    longest = {file: LONGEST_SCRIPT if file.endswith(".py") else LONGEST_FILE for file in lengths}
    assert {file: n for file, n in lengths.items() if n > longest[file]} == {}
