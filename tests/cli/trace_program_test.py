"""superneurons trace -- COMMAND: any CUDA program, seen by a tracer that the driver loads."""

import os
import stat
import subprocess

import pytest

# Stands in for the tracer: a command that writes the log that the library would.
LOG = (
    '{"tag":-1,"name":"gemm","correlation":2,"stream":7,"start":100,"end":160,"kernel":true}\\n'
    '{"tag":-1,"name":"memcpy","correlation":1,"stream":7,"start":40,"end":90,"kernel":false}\\n'
    '{"r":"end","activities":2,"dropped":0}\\n'
)


@pytest.fixture
def call(tmp_path, superneurons_with_library):
    def run(*words, output="t.jsonl"):
        return subprocess.run(
            [superneurons_with_library, "trace", "-o", output, "--", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture
def superneurons_with_library(tmp_path):
    """The program in a folder with something in the library's place (never loaded here)."""
    program = os.path.abspath(os.environ.get("SUPERNEURONS", "build/superneurons"))
    if not os.path.exists(program):
        pytest.skip("superneurons is not built")
    (tmp_path / "bin").mkdir()
    copy = tmp_path / "bin" / "superneurons"
    copy.write_bytes(open(program, "rb").read())
    copy.chmod(copy.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "bin" / "libsuperneurons_cupti.so").write_bytes(b"")
    return str(copy)


def shell(script):
    return ("sh", "-c", script)


WRITE = f"printf '{LOG}' > \"$SUPERNEURONS_ACTIVITY_LOG.$$\""


def test_the_log_becomes_a_trace_and_the_command_keeps_its_output(call, tmp_path):
    done = call(*shell(WRITE + '; echo hello; echo "$CUDA_INJECTION64_PATH" > where'))
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
    assert "t.jsonl: 2 kernels and copies in 120 ns, 0 dropped records" in done.stderr
    assert (tmp_path / "where").read_text().strip().endswith("bin/libsuperneurons_cupti.so")
    text = (tmp_path / "t.jsonl").read_text()
    assert text.index("0.memcpy") < text.index("1.gemm")
    assert "superneurons trace -- sh -c" in text.splitlines()[0]


def test_policies_that_need_accesses_refuse(call, tmp_path, superneurons_with_library):
    call(*shell(WRITE))
    done = subprocess.run(
        [superneurons_with_library, "plan", "t.jsonl", "--policy", "liveness"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "accesses" in done.stderr


def test_the_exit_code_is_that_of_the_command(call, tmp_path):
    done = call(*shell(WRITE + "; exit 7"))
    assert done.returncode == 7 and (tmp_path / "t.jsonl").exists()
    assert call(*shell("kill -TERM $$")).returncode == 128 + 15


def test_each_process_has_a_trace(call, tmp_path):
    child = f"printf '{LOG}' > \"$SUPERNEURONS_ACTIVITY_LOG.99\""
    done = call(*shell(WRITE + "; " + child), output="t.v1.jsonl")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "t.v1.jsonl").exists() and (tmp_path / "t-99.v1.jsonl").exists()


def test_a_command_without_cuda_is_told_so(call, tmp_path):
    done = call("true")
    assert done.returncode == 2 and "true used no CUDA" in done.stderr
    assert not (tmp_path / "t.jsonl").exists()
    done = call(*shell("exit 3"))
    assert done.returncode == 3 and "used no CUDA" in done.stderr


def test_bad_usage(call, superneurons_with_library):
    assert "cannot be started" in call("no-such-program").stderr
    assert "no command follows --" in call().stderr
    for words in (["trace", "small_cnn", "-o", "x", "--", "true"], ["trace", "-o", "x"]):
        done = subprocess.run(
            [superneurons_with_library, *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 2 and "a network, or a command after --" in done.stderr


def test_without_the_library_it_is_told_where_it_was_looked_for(call, tmp_path):
    (tmp_path / "bin" / "libsuperneurons_cupti.so").unlink()
    done = call("true")
    assert done.returncode == 2 and "libsuperneurons_cupti.so is neither beside" in done.stderr
