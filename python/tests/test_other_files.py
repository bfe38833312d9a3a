"""A file of another kind is named with what is wanted; without matplotlib there is one clear line."""

import os
import subprocess
import sys

import pytest

from superneurons.files import BadInput
from superneurons.plans import read_plan
from superneurons.profiles import read_profile
from superneurons.results import read_memory, read_results, read_timeline
from superneurons.traces import read_trace

TEXTS = {
    "a trace": '{"r":"header","format":"superneurons-trace","version":"0.1"}\n{"r":"end"}\n',
    "a plan": '{"r":"header","format":"superneurons-plan","version":"0.1"}\n{"run":0}\n',
    "a device profile": '{\n  "format":"superneurons-profile",\n  "version":"0.1"\n}\n',
    "a result of compare, simulate or replay": '{\n "format": "superneurons-result"\n}\n',
    "memory over plan steps": '{"format":"superneurons-memory","version":"0.1"}\n',
    "a timeline": '{"otherData":{},\n"traceEvents":[]}\n',
}
READERS = {
    "a trace": read_trace,
    "a plan": read_plan,
    "a device profile": read_profile,
    "a result of compare, simulate or replay": read_results,
    "memory over plan steps": read_memory,
    "a timeline": read_timeline,
}


@pytest.mark.parametrize("wanted", READERS)
@pytest.mark.parametrize("given", TEXTS)
def test_both_kinds_are_named(given, wanted, tmp_path):
    if given == wanted:
        return
    file = tmp_path / "file"
    file.write_text(TEXTS[given])
    with pytest.raises(BadInput) as error:
        READERS[wanted](str(file))
    what, _, would_be = str(error.value).partition(" (would be ")
    assert given in what
    assert would_be.startswith(wanted)


def test_plots_without_matplotlib_say_what_to_install(root, tmp_path):
    (tmp_path / "matplotlib").mkdir()
    (tmp_path / "matplotlib" / "__init__.py").write_text("raise ImportError('not here')\n")
    path = os.pathsep.join([str(tmp_path), str(root / "python")])
    done = subprocess.run(
        [sys.executable, "-m", "superneurons.plot", "pareto", "r.json", "-o", "f.pdf"],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("superneurons: plots need matplotlib (not here; would be installed by ")
