"""superneurons trace -- python SCRIPT, without PyTorch: programs that have nothing to capture behave
as without us, and are told why."""

import os
import signal
import stat
import subprocess
import sys

import pytest


@pytest.fixture
def call(tmp_path):
    program = os.path.abspath(os.environ.get("SUPERNEURONS", "build/superneurons"))
    if not os.path.exists(program):
        pytest.skip("superneurons is not built")

    def run(*words, options=(), environment=None, python=sys.executable):
        output = [] if "-o" in options else ["-o", "t.jsonl"]
        return subprocess.run(
            [program, "trace", *output, *options, "--", python, *words],
            cwd=tmp_path, capture_output=True, text=True, check=False,
            env={**os.environ, **(environment or {})},
        )  # fmt: skip

    return run


def test_a_program_without_pytorch_runs_as_always_and_is_told(call, tmp_path):
    done = call("-c", "import sys; print(sys.stdin.isatty(), 'hello')")
    assert done.stdout.endswith("hello\n") and done.returncode == 2
    assert "nothing was captured: it did not import PyTorch before it ended" in done.stderr
    assert os.listdir(tmp_path) == []


def test_its_exit_code_is_its_own(call):
    assert call("-c", "raise SystemExit(7)").returncode == 7
    done = call("-c", "1 / 0")
    assert done.returncode == 1 and "ZeroDivisionError" in done.stderr
    killed = call("-c", f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})")
    assert killed.returncode == 128 + 9


def test_the_program_finds_its_own_modules_and_nothing_of_ours(call, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "sitecustomize.py").write_text("print('site of mine')\n")
    (tmp_path / "mine" / "files.py").write_text("name = 'mine'\n")
    look = "import sys, files, sitecustomize; print(files.name, sitecustomize.__file__);"
    look += "print([p for p in sys.path if 'superneurons' in p])"
    done = call("-c", look, environment={"PYTHONPATH": str(tmp_path / "mine")})
    assert done.stdout == f"site of mine\nmine {tmp_path}/mine/sitecustomize.py\n[]\n"


def test_a_script_with_a_first_line_of_python_is_python(call, tmp_path):
    script = tmp_path / "train"
    script.write_text(f"#!{sys.executable}\nprint('trained')\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    done = call(python=str(script))
    assert done.stdout == "trained\n" and "it did not import PyTorch" in done.stderr


def test_a_program_that_cannot_be_started_is_said_with_the_exit_code_of_a_shell(call, tmp_path):
    for missing in ("nosuchprog", "python-no-such-version", "./none/of/these"):
        done = call(python=missing)
        assert done.returncode == 127
        first = f"superneurons: {missing}: not found (would be a program on the PATH, or its path)\n"
        assert done.stderr == first
    (tmp_path / "data").write_text("no program")
    done = call(python="./data")
    assert done.returncode == 126
    assert done.stderr.startswith("superneurons: ./data: cannot be started")


def test_an_output_that_cannot_be_written_is_known_before_the_program_runs(call, tmp_path):
    done = call("-c", "print(1)", options=["-o", "none/t.jsonl"])
    assert done.returncode == 2 and done.stdout == ""
    (tmp_path / "folder").mkdir()
    done = call("-c", "print(1)", options=["-o", "folder"])
    assert done.returncode == 2 and done.stdout == "" and "it is a folder" in done.stderr


def test_compiled_programs_need_the_collector_of_kernels(call, tmp_path):
    done = call("-c", "print(1)", options=["--compiled", "--strip-recompute"])
    assert done.returncode == 2 and "--strip-recompute does not go with --compiled" in done.stderr
    done = call("-c", "print(1)", options=["--compiled"])
    if done.returncode == 2 and not done.stdout:
        assert "--compiled needs libsuperneurons_cupti.so" in done.stderr  # a build without CUDA
    assert not (tmp_path / "t.jsonl").exists()


def test_bad_usage(call, tmp_path):
    done = call("-c", "print(1)", options=["--untouched", "many"])
    assert done.returncode == 2 and done.stdout == "" and "--untouched" in done.stderr
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "capture.1.jsonl").write_text("")
    done = call("-c", "print(1)", options=["--keep-raw", "raw"])
    assert done.returncode == 2 and "holds a raw capture already" in done.stderr


def test_a_pytorch_too_old_is_said_once_and_the_program_runs(call, tmp_path):
    (tmp_path / "torch.py").write_text("__version__ = '1.13.1'\n")
    done = call("-c", "import torch; print('trained')", environment={"PYTHONPATH": str(tmp_path)})
    assert (done.returncode, done.stdout) == (2, "trained\n")
    said, end = done.stderr.splitlines()
    assert said == "superneurons: not captured: needs PyTorch 2.2 or later, this is 1.13.1"
    assert "nothing was captured: the capture could not begin" in end
    assert not (tmp_path / "t.jsonl").exists()
