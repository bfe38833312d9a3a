"""networks/frameworks.md: its tables are those of the registry and of tests/golden/frameworks.txt.

Regenerate with: python3 -m pytest tests/cli/frameworks_test.py --regenerate
"""

import json
import re

import pytest
from conftest import ROOT

PAGE = ROOT / "networks" / "frameworks.md"
GOLDEN = ROOT / "tests" / "golden" / "frameworks.txt"


@pytest.fixture
def models(run):
    return json.loads(run("policies", "--json", "-").out)["models"]


def row(*cells):
    return "| " + " | ".join(cells) + " |\n"


def registry_table(models):
    """What the registry says of each model."""
    text = row("model", "policy", "lowering", "what it is") + "|---|---|---|---|\n"
    for model in models:
        name, passes, lowering = (f"`{model[key]}`" for key in ("name", "passes", "lowering"))
        text += row(name, passes, lowering, model["summary"])
    return text


def golden_rows():
    """The table of the golden file: a dict of cells by title for each network."""
    lines = GOLDEN.read_text().splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("network "))
    rows = [re.split(r"  +", line.strip()) for line in lines[begin:] if line]
    end = next(i for i, cells in enumerate(rows) if cells[0] == "depth") + 1
    return [dict(zip(rows[0], cells)) for cells in rows[1:end]]


def print_table(models):
    """Ours, and in brackets what the paper prints."""
    names = [model["name"] for model in models]
    text = row("", *(f"`{name}`" for name in names)) + "|---" * (len(names) + 1) + "|\n"
    for cells in golden_rows():
        shown = []
        for name in names:
            ours = cells[f"{name} (ours)"]
            if ours == "-":
                ours = "none"
            printed = cells.get(f"{name} (paper)")
            shown.append(f"{ours} ({printed})" if printed else ours)
        text += row(cells["network"], *shown)
    return text


@pytest.mark.parametrize(
    ("name", "table"), [("registry", registry_table), ("print", print_table)]
)
def test_tables_are_those_of_the_registry_and_the_golden_file(name, table, models, request):
    block = re.compile(rf"(<!-- generated: {name} -->\n).*?(<!-- /generated -->)", re.DOTALL)
    text = PAGE.read_text()
    assert block.search(text)
    wanted = block.sub(lambda found: f"{found[1]}\n{table(models)}\n{found[2]}", text)
    if request.config.getoption("--regenerate"):
        PAGE.write_text(wanted)
    assert PAGE.read_text() == wanted


def test_the_habits_of_each_lowering_are_told(models):
    told = re.findall(r"^\| `(\w+)` \|", PAGE.read_text().split("## Habits")[1], re.MULTILINE)
    assert told == list(dict.fromkeys(model["lowering"] for model in models))
