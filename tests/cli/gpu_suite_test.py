"""bench/gpu.py, which `./dev gpu` runs: its parts are the whole, and what is done stays done."""

import subprocess
import sys

from conftest import PROGRAM, ROOT


def run(*options):
    return subprocess.run(
        [sys.executable, ROOT / "bench" / "gpu.py", *options], capture_output=True, text=True
    )


def jobs(*options):
    return run("--list", *options).stdout.split()


def test_every_job_is_in_one_part_and_the_resumable_are_in_all():
    parts = [jobs("--part", f"{k}/3") for k in (1, 2, 3)]
    shared = {"fidelity", "stress", "scale"}
    alone = [job for part in parts for job in part if job not in shared]
    assert sorted(alone) == sorted(set(jobs()) - shared)
    assert all(shared <= set(part) for part in parts)


def test_what_is_done_is_not_done_again(tmp_path):
    how = ["--out", tmp_path, "--build", PROGRAM.parent, "--on", "host", "--only", "digits"]
    first = run(*how)
    assert first.returncode == 0, first.stderr
    assert "s: digits" in first.stderr
    assert "equal: 76 checksums" in (tmp_path / "digits.log").read_text()
    again = run(*how)
    assert again.returncode == 0 and "s: digits" not in again.stderr


def test_what_fails_is_named_and_tried_again(tmp_path):
    how = ["--out", tmp_path, "--build", tmp_path, "--on", "host", "--only", "digits"]
    for _ in range(2):
        failed = run(*how)
        assert failed.returncode == 1
        assert "failed: digits" in failed.stderr


def test_bad_parts_and_unknown_jobs_are_refused():
    assert "not of the form k/n" in run("--part", "x").stderr
    unknown = run("--only", "nonsense")
    assert unknown.returncode == 2 and "fidelity" in unknown.stderr
