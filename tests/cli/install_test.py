"""`cmake --install` gives a program that finds its device profiles, wherever it is put."""

import json
import subprocess

import pytest
from conftest import PROGRAM, ROOT


def test_the_installed_program_finds_its_profiles(tmp_path):
    if not (PROGRAM.parent / "cmake_install.cmake").exists():
        pytest.skip("the program under test is not in a build folder")
    prefix = tmp_path / "prefix"
    subprocess.run(
        ["cmake", "--install", PROGRAM.parent, "--prefix", prefix], check=True, capture_output=True
    )
    moved = tmp_path / "moved"
    prefix.rename(moved)
    done = subprocess.run(
        [moved / "bin" / "superneurons", "devices", "--json", "-"],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert (moved / "share/superneurons/data/digits.csv.gz").exists()
    files = [device["file"] for device in json.loads(done.stdout)["devices"]]
    assert len(files) == len(list((ROOT / "traces" / "profiles").glob("*.json")))
    assert all((tmp_path / file).resolve().is_relative_to(moved) for file in files)
