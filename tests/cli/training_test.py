"""`replay --data`: digits are learned in less memory than liveness needs, by the reference's curve."""

import json

import pytest

STEPS = 66  # three epochs


@pytest.fixture(scope="module")
def trace(tmp_path_factory, run):
    file = tmp_path_factory.mktemp("training") / "digits.jsonl.gz"
    done = run("trace", "digits_resnet", "--rate", "0.05", "--on", "host", "--steps", "1",
               "--warmup", "0", "-o", file)  # fmt: skip
    assert done.code == 0, done.err
    return file


def test_learns_where_liveness_does_not_fit(run, trace, tmp_path):
    budget = ("--budget", "70%")
    assert run("replay", trace, "--policy", "liveness", *budget, "--data", "digits").code == 1
    result = tmp_path / "result.json"
    done = run("replay", trace, "--policy", "recompute_offload", *budget, "--data", "digits",
               "--steps", STEPS, "--json", result)  # fmt: skip
    assert done.code == 0, done.err
    assert f"loss curves are equal to the bit over {STEPS} training steps" in done.out
    outcome = json.loads(result.read_text())["outcomes"][0]
    assert outcome["equal"] is True
    assert len(outcome["losses"]) == STEPS
    assert outcome["losses"] == outcome["reference_losses"]
    assert outcome["losses"][-1] < outcome["losses"][0] / 4
    assert outcome["data"] == "digits"
    assert outcome["test_images"] == 360
    assert outcome["test_accuracy"] == outcome["test_correct"] / 360 > 0.95
    assert f"({outcome['test_correct']} of 360 images" in done.out


def test_without_data_the_batch_stays(run, trace):
    done = run("replay", trace, "--policy", "liveness", "--no-reference", "--steps", 2)
    assert done.code == 0, done.err
    assert "loss of each training step: " in done.out
    assert "test accuracy" not in done.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data", "digit"], "did you mean 'digits'"),
        (["--data", "nosuch/file"], "nosuch/file"),
        (["--data", "digits", "--kernels", "verify"], "--kernels native"),
    ],
)
def test_bad_data_is_refused(run, trace, arguments, words):
    done = run("replay", trace, "--policy", "liveness", *arguments)
    assert done.code == 2
    assert words in done.error


def test_data_goes_only_with_its_networks(run, tmp_path):
    trace = tmp_path / "t.jsonl"
    assert run("build", "small_cnn", "-o", trace).code == 0
    done = run("replay", trace, "--policy", "liveness", "--data", "digits")
    assert done.code == 2
    assert "images are 1x8x8, and the trace takes 3x32x32" in done.error


def test_a_data_set_of_ones_own(run, trace, tmp_path):
    header = {"format": "superneurons-data", "version": "0.1", "name": "mine", "shape": [1, 8, 8],
              "classes": 2, "most": 1, "train": 64, "test": 0}  # fmt: skip
    image = ",".join(["1"] * 64)
    lines = [json.dumps(header), *(f"{i % 2},{image}" for i in range(64))]
    file = tmp_path / "mine.csv"
    file.write_text("\n".join(lines) + "\n")
    done = run("replay", trace, "--policy", "liveness", "--data", file, "--steps", 2)
    assert done.code == 0, done.err
    assert "test accuracy" not in done.out
    file.write_text("\n".join(lines[:-1]) + "\n0,1\n")
    done = run("replay", trace, "--policy", "liveness", "--data", file)
    assert done.code == 2
    assert done.error.startswith(f"{file}:65: pixel 1 ")


def test_the_rate_is_the_traces(run, tmp_path):
    file = tmp_path / "t.jsonl"
    options = ("--rate", "0.5", "--momentum", "0.25", "--weight-decay", "0")
    assert run("build", "small_cnn", *options, "-o", file).code == 0
    assert '"momentum":0.25,"rate":0.5,"weight_decay":0.0' in file.read_text().replace(
        '"weight_decay":0}', '"weight_decay":0.0}'
    )
    for bad in (("--rate", "-1"), ("--momentum", "2"), ("--weight-decay", "x")):
        done = run("build", "small_cnn", *bad, "-o", file)
        assert done.code == 2
        assert bad[0] in done.error
