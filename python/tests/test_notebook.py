"""The notebooks run from top to bottom, as `jupyter nbconvert --execute` runs them."""

import json
import os
import subprocess
import sys

import pytest

for module in ("nbconvert", "ipykernel", "matplotlib"):
    pytest.importorskip(module, reason=f"{module} is not installed")

from superneurons.program import find_program  # noqa: E402


def executed(root, tmp_path, name):
    """The cells of a notebook after a run without a display."""
    environment = {
        **os.environ,
        "SUPERNEURONS": os.path.abspath(find_program()),
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "JUPYTER_DATA_DIR": str(tmp_path / "jupyter"),
    }
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "nbconvert",
            "--to",
            "notebook",
            "--execute",
            "--output-dir",
            str(tmp_path),
            str(root / "notebooks" / name),
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    cells = json.loads((tmp_path / name).read_text())["cells"]
    return [output for cell in cells for output in cell.get("outputs", [])]


def test_your_trace_runs_headless(root, program, tmp_path):
    outputs = executed(root, tmp_path, "your_trace.ipynb")
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 3
    assert "winner:" in "".join("".join(output.get("text", [])) for output in outputs)


def test_the_paper_runs_headless(root, program, tmp_path):
    outputs = executed(root, tmp_path, "paper.ipynb")
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 10
    assert "tensors equal at 46 of 46 steps" in "".join(
        "".join(output.get("text", [])) for output in outputs
    )


def test_notebooks_are_kept_without_output(root):
    for file in (root / "notebooks").glob("*.ipynb"):
        for cell in json.loads(file.read_text())["cells"]:
            assert not cell.get("outputs") and cell.get("execution_count") is None, file.name
