"""The pages tell the truth: their ```console blocks are run, and the README's tables are generated.

A line `$ command` is run. In a ```console same block it must print what stands there; in a ```console
alike block the times may differ.
Regenerate outputs and tables with: python3 -m pytest tests/cli/readme_test.py --regenerate
"""

import json
import os
import re
import shlex
import shutil
import subprocess

import pytest
from conftest import PROGRAM, ROOT

README = ROOT / "README.md"
PAGES = ("README.md", "CONTRIBUTING.md", "traces/PYTORCH.md")
BLOCK = re.compile(r"^```console( same| alike)?\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
TABLES = re.compile(r"(<!-- generated: tables -->\n).*?(<!-- /generated -->)", re.DOTALL)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    """A folder in which the commands find what they read, and may write."""
    folder = tmp_path_factory.mktemp("readme")
    for name in ("traces", "python"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "bin").mkdir()
    (folder / "bin" / "superneurons").symlink_to(PROGRAM)
    return folder


def shell(command, folder):
    environment = os.environ | {
        "PATH": f"{folder}/bin:{os.environ['PATH']}",
        "SUPERNEURONS": str(folder / "bin" / "superneurons"),
    }
    return subprocess.run(
        ["sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip


def without_times(text):
    """Nor what a chain of roundings ends at, which follows the machine's exp() and log()."""
    text = re.sub(r"\b[\d.]+ (ns|us|ms|s)\b", "TIME", text)
    text = re.sub(r"TIME traced \([\d.]+x\)", "TIME traced", text)
    text = re.sub(r"^(loss of training step) .*$", r"\1", text, flags=re.MULTILINE)
    text = re.sub(r"^test accuracy [\d.]+ % \(\d+ of", "test accuracy of", text, flags=re.MULTILINE)
    return re.sub(r" +", " ", text)


def commands(block):
    return [line[2:] for line in block.splitlines() if line.startswith("$ ")]


@pytest.mark.parametrize(("page", "least"), [("README.md", 5), ("traces/PYTORCH.md", 3)])
def test_commands_run_and_print_what_stands_there(scratch, request, page, least):
    text = (ROOT / page).read_text()
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) >= least
    for block in blocks:
        printed = ""
        for command in commands(block[2]):
            done = shell(command, scratch)
            assert done.returncode == 0, f"{command}\n{done.stderr}"
            printed += f"$ {command}\n{done.stdout}"
        if not block[1]:
            continue
        stands, prints = block[2], printed
        if block[1] == " alike":
            stands, prints = without_times(stands), without_times(prints)
        if stands != prints and request.config.getoption("--regenerate"):
            text = text.replace(block[0], f"```console{block[1]}\n{printed}```\n")
        else:
            assert stands == prints
    if request.config.getoption("--regenerate"):
        (ROOT / page).write_text(text)


def row(*cells):
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def tables(run):
    policies = json.loads(run("policies", "--json", "-").out)
    networks = json.loads(run("networks", "--json", "-").out)["networks"]
    text = row("policy", "what it does", "options") + "|---|---|---|\n"
    for entry in policies["policies"]:
        options = ", ".join(f"`{option['name']}`" for option in entry["options"])
        text += row(f"`{entry['name']}`", entry["summary"], options)
    for entry in policies["compositions"]:
        text += row(f"`{entry['name']}`", f"`{entry['passes']}`: {entry['summary']}", "")
    for entry in policies["models"]:
        passes = f"`{entry['passes']}` on `--lowering {entry['lowering']}`"
        text += row(f"`{entry['name']}`", f"{passes}: {entry['summary']}", "")
    text += "\n" + row("network", "what it is", "default batch") + "|---|---|---|\n"
    for entry in networks:
        text += row(f"`{entry['name']}`", entry["summary"], str(entry["default_batch"]))
    return text + row("`resnet:A,B,C,D`", "bottleneck ResNet of depth 3(A+B+C+D)+2", "16")


def test_tables_are_those_of_the_registries(run, request):
    text = README.read_text()
    wanted = TABLES.sub(lambda found: found[1] + "\n" + tables(run) + "\n" + found[2], text)
    if request.config.getoption("--regenerate"):
        README.write_text(wanted)
    anew = "python3 -m pytest tests/cli/readme_test.py --regenerate writes the tables anew"
    assert README.read_text() == wanted, anew


def test_links_lead_somewhere():
    for page in PAGES:
        text = (ROOT / page).read_text()
        for link in re.findall(r"\]\(([^)#]+)", text):
            if not link.startswith("http"):
                assert (ROOT / page).parent.joinpath(link).exists(), f"{page}: {link}"


def test_options_named_in_the_docs_exist(run):
    """Every `superneurons COMMAND ... --option` of the pages is known to the program."""
    help_of = {}
    for page in PAGES:
        for line in (ROOT / page).read_text().splitlines():
            for call in re.findall(r"superneurons ([a-z]+) ([^`|#&]*)", line):
                name, rest = call
                if name not in help_of:
                    help_of[name] = run(name, "--help")
                if help_of[name].code != 0:
                    continue  # prose
                for option in re.findall(r"(?<!\S)--?[a-z][a-z-]*", rest):
                    assert option in help_of[name].out, f"{page}: {name} {option}"


def test_dev_explains_itself():
    done = shell("./dev help", ROOT)
    assert done.returncode == 0
    for command in ("demo", "test", "gpu", "figures", "format"):
        assert f"  {command} " in done.stdout
    assert shell("sh -n dev", ROOT).returncode == 0
    for wrong in ("", "dance", "demo --fast", "gpu --part"):
        done = shell(f"./dev {wrong}", ROOT)
        assert done.returncode == 2, shlex.quote(wrong)


def test_dev_says_what_is_missing_before_it_builds(tmp_path):
    for tool in ("sh", "dirname", "grep"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    for command, wrong in (("gpu", "no GPU here"), ("format", "no clang-format here")):
        done = shell(f"PATH={shlex.quote(str(tmp_path))}; ./dev {command} --build-dir nowhere", ROOT)
        assert (done.returncode, done.stdout) == (2, "")
        assert re.fullmatch(f"dev: {wrong}.*\n", done.stderr), done.stderr
    assert not (ROOT / "nowhere").exists()
