"""superneurons trace -- COMMAND: any CUDA program, seen by a tracer that the driver loads."""

import os
import stat
import subprocess

import pytest

# Stands in for the tracer: a command that writes the log that the library would.
HEAD = '{"r":"header","format":"superneurons-activities","version":"0.1","process":1}\\n'
WORK = (
    '{"r":"name","id":0,"text":"gemm"}\\n'
    '{"r":"kernel","name":0,"call":2,"stream":7,"start":100,"end":160}\\n'
    '{"r":"name","id":1,"text":"memcpy HtoD"}\\n'
    '{"r":"copy","name":1,"call":1,"stream":7,"start":40,"end":90,"bytes":64}\\n'
)
LOG = HEAD + WORK + '{"r":"end","activities":2,"dropped":0}\\n'


@pytest.fixture
def call(tmp_path, superneurons_with_library):
    def run(*words, output="t.jsonl", options=()):
        return subprocess.run(
            [superneurons_with_library, "trace", "-o", output, *options, "--", *words],
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
    where = 'echo "$CUDA_INJECTION64_PATH" "$NVTX_INJECTION64_PATH" > where'
    done = call(*shell(WRITE + "; echo hello; " + where))
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
    assert "t.jsonl: 2 ops of 2 kernels and copies, 0 allocations, 120 ns" in done.stderr
    assert "the whole run is taken as one training step" in done.stderr
    places = (tmp_path / "where").read_text().split()
    assert len(places) == 2 and all(p.endswith("bin/libsuperneurons_cupti.so") for p in places)
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
    assert "accesses" in done.stderr and "superneurons trace -o T -- python" in done.stderr


def test_the_exit_code_is_that_of_the_command(call, tmp_path):
    done = call(*shell(WRITE + "; exit 7"))
    assert done.returncode == 7 and (tmp_path / "t.jsonl").exists()
    assert call(*shell("kill -TERM $$")).returncode == 128 + 15


def log_of(process, text=LOG):
    return f"printf '{text}' > \"$SUPERNEURONS_ACTIVITY_LOG.{process}\""


def test_each_process_with_work_has_a_trace_and_that_is_said(call, tmp_path):
    done = call(*shell(WRITE + "; " + log_of(99)), output="t.v1.jsonl")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "t.v1.jsonl").exists() and (tmp_path / "t-99.v1.jsonl").exists()
    assert "2 processes used a GPU" in done.stderr


def test_standard_output_takes_the_trace_of_one_process(call, tmp_path):
    done = call(*shell(f"{log_of(98)}; {log_of('$$')}"), output="-")
    assert done.returncode == 0 and done.stdout.count('"header"') == 1
    assert "standard output takes the trace of one" in done.stderr
    assert os.listdir(tmp_path) == ["bin"]


def test_the_process_with_most_work_counts_where_the_command_itself_did_none(call, tmp_path):
    more = HEAD + WORK + WORK.replace('"id":0', '"id":2').replace('"id":1', '"id":3')
    done = call(*shell(f"{log_of(98)}; {log_of(99, more)}; {log_of('$$', HEAD)}"))
    assert done.returncode == 0, done.stderr
    assert "t.jsonl: 4 ops" in done.stderr and "t-98.jsonl: 2 ops" in done.stderr
    assert sorted(p.name for p in tmp_path.glob("*.jsonl")) == ["t-98.jsonl", "t.jsonl"]


@pytest.mark.parametrize("ending", ["kill -9 $$", "kill -SEGV $$", "exit 3"])
def test_what_was_written_before_a_hard_end_is_converted(call, tmp_path, ending):
    half = HEAD + WORK + '{"r":"ker'
    done = call(*shell(f"{log_of('$$', half)}; {ending}"))
    assert done.returncode == {"kill -9 $$": 137, "kill -SEGV $$": 139, "exit 3": 3}[ending]
    assert "cut off after kernel or copy 1, gemm" in done.stderr
    assert (tmp_path / "t.jsonl").exists()


def test_a_damaged_log_is_refused_and_says_where(call, tmp_path):
    damaged = HEAD + "nonsense\\n" + WORK
    done = call(*shell(log_of("$$", damaged)), options=("--keep-log", "kept"))
    assert done.returncode == 2 and "one JSON object per line" in done.stderr
    assert (tmp_path / "kept").read_text().splitlines()[1] == "nonsense"


def test_the_log_is_kept_where_that_is_asked_for(call, tmp_path):
    assert call(*shell(WRITE), options=("--keep-log", "kept")).returncode == 0
    assert (tmp_path / "kept").read_text() == LOG.replace("\\n", "\n")


def test_windows_that_are_not_there_are_refused(call, tmp_path):
    done = call(*shell(WRITE), options=("--window", "range:step"))
    assert done.returncode == 2 and "marks no NVTX ranges" in done.stderr
    done = call(*shell("touch ran"), options=("--window", "steps"))
    assert done.returncode == 2 and "pattern, whole or range:NAME" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_command_without_cuda_is_told_so(call, tmp_path):
    done = call("true")
    assert done.returncode == 2 and "true ran nothing on a GPU" in done.stderr
    assert not (tmp_path / "t.jsonl").exists()
    done = call(*shell("exit 3"))
    assert done.returncode == 3 and "ran nothing on a GPU" in done.stderr


def test_a_folder_for_temporary_files_that_is_not_there_is_told(
    call, tmp_path, superneurons_with_library, monkeypatch
):
    (tmp_path / "log").write_text(LOG.replace("\\n", "\n"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    convert = [superneurons_with_library, "convert", "log", "-o", "t.jsonl"]
    for done in (
        call(*shell("touch ran")),
        subprocess.run(convert, cwd=tmp_path, capture_output=True, text=True, check=False),
    ):
        assert done.returncode == 2, done.stderr
        assert "no folder for temporary files" in done.stderr and "TMPDIR" in done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("source", ["-", "/dev/stdin"])
def test_a_log_from_a_pipe_is_refused_as_it_is_read_twice(
    tmp_path, superneurons_with_library, source
):
    done = subprocess.run(
        [superneurons_with_library, "convert", source, "-o", "t.jsonl"],
        cwd=tmp_path,
        input=LOG.replace("\\n", "\n"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert f"{source}: is read twice (would be a file or a folder)" in done.stderr


def test_a_program_whose_name_begins_as_pythons_is_no_python(call, tmp_path):
    script = tmp_path / "python_benchmark"
    script.write_text(f'#!/bin/sh\necho "$0 $@"\n{WRITE}\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    done = call("./python_benchmark", "--fast")
    assert (done.returncode, done.stdout) == (0, "./python_benchmark --fast\n"), done.stderr


def test_a_script_without_a_first_line_runs_as_in_a_shell(call, tmp_path):
    for name, first, code in (("script", "", 0), ("orphan", "#!/no/such/shell\n", 126)):
        script = tmp_path / name
        script.write_text(f'{first}echo "$1"\n{WRITE}\n')
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        done = call(f"./{name}", "hello")
        assert (done.returncode, done.stdout) == (code, "" if code else "hello\n"), done.stderr
    assert "./orphan cannot be started (No such file" in done.stderr


def test_bad_usage(call, superneurons_with_library):
    missing = call("no-such-program")
    assert missing.returncode == 127 and "no-such-program: not found" in missing.stderr
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
