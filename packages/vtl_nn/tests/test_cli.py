"""The command vtl: what it prints and leaves behind, and that every failure is one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import vtl_data
import vtl_nn as nn
from vtl_nn.cli import MODELS, main, models

SMALL = ["train", "shapes", "--device", "cpu", "--subset", "96", "--epochs", "1", "--batch-size", "32"]


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in ("VTL_BACKEND", "VTL_BACKEND_STRICT", "VTL_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)


def run(capsys, *arguments):
    """Exit code, stdout and stderr of a command."""
    try:
        code = main([str(a) for a in arguments])
    except SystemExit as stop:
        code = stop.code
    out, err = capsys.readouterr()
    return code, out, err


def test_training_prints_a_line_an_epoch_and_how_to_go_on(capsys, tmp_path):
    pytest.importorskip("matplotlib", reason="curves are drawn with the extra plot")
    code, out, err = run(
        capsys, *SMALL, "--save", tmp_path / "w.safetensors", "--plot", tmp_path / "c.png", "--epochs", "2"
    )

    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[0] == "shapes: 96 training and 96 test images; cnn of 545,098 parameters on cpu:0"
    assert lines[1].startswith("epoch 1/2  loss ")
    assert "test accuracy" in lines[2]
    assert lines[3].startswith("test accuracy ")
    assert lines[4:6] == [f"weights: {tmp_path / 'w.safetensors'}", f"curve: {tmp_path / 'c.png'}"]
    assert lines[6] == f"measure them again: vtl eval shapes --weights {tmp_path / 'w.safetensors'}"
    assert lines[7].startswith("real images: vtl train cifar10 --data data --epochs 3")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.png", "w.safetensors"]
    assert nn.load_metadata(tmp_path / "w.safetensors")["dataset"] == "shapes"


def test_json_is_one_object_and_nothing_else(capsys):
    code, out, err = run(capsys, *SMALL, "--json")
    result = json.loads(out)

    assert (code, err) == (0, "")
    assert result["device"] == "cpu:0"
    assert len(result["epochs"]) == 1
    assert result["test_accuracy"] == result["epochs"][0]["validation_accuracy"]


def test_quiet_prints_the_result_alone(capsys):
    _, out, _ = run(capsys, *SMALL, "--quiet")
    assert out.startswith("test accuracy ")
    assert out.count("\n") == 1


def test_saved_weights_are_measured_as_in_training(capsys, tmp_path):
    _, out, _ = run(capsys, *SMALL, "--save", tmp_path / "w", "--json")
    trained = json.loads(out)
    code, out, _ = run(capsys, "eval", "shapes", "--weights", tmp_path / "w", "--subset", 96, "--json")

    assert code == 0
    assert json.loads(out)["test_accuracy"] == trained["test_accuracy"]
    assert run(capsys, "eval", "shapes", "--weights", tmp_path / "w", "--subset", 96)[1].startswith("test accuracy ")


LARGE = ("resnet18", "resnet34", "vgg11")  # slow: hundreds of millions of multiply-adds an image


@pytest.mark.parametrize("model", ["airbench", *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE)])
def test_every_model_of_images_trains_and_is_measured_again(capsys, tmp_path, model):
    few = ["--subset", 8, "--batch-size", 4, "--model", model]
    code, out, err = run(capsys, *SMALL, *few, "--save", tmp_path / "w")
    assert (code, err) == (0, "")
    assert f"; {model} of " in out
    assert f"vtl eval shapes --model {model} --weights {tmp_path / 'w'}" in out
    code, out, err = run(capsys, "eval", "shapes", "--weights", tmp_path / "w", *few, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["images"] == 8


def test_every_model_has_a_name_and_airbench_sees_the_images_first(capsys):
    known = {*models.IMAGES.values(), *models.TEXTS.values()}
    families = {nn.models.ResNet, nn.models.VGG}  # of which there are functions
    assert known == {getattr(nn.models, name) for name in nn.models.__all__} - families
    assert (*models.IMAGES, *models.TEXTS) == MODELS
    images = vtl_data.Shapes(16, train=True, seed=0)
    plain, whitened = (models.make("airbench", "shapes", 10, given) for given in (None, images))
    assert not (plain.whitening.weight.numpy() == whitened.whitening.weight.numpy()).any()


def test_a_resumed_run_is_the_uninterrupted_one(capsys, tmp_path):
    """E07, from the command line."""
    options = [*SMALL[:-4], "--batch-size", "32", "--json"]
    run(capsys, *options, "--epochs", 2, "--save", tmp_path / "whole")
    run(capsys, *options, "--epochs", 1, "--checkpoint", tmp_path / "run")
    code, out, err = run(
        capsys, *options, "--epochs", 2, "--checkpoint", tmp_path / "run", "--resume", "--save", tmp_path / "resumed"
    )

    assert (code, err) == (0, "")
    assert len(json.loads(out)["epochs"]) == 2
    assert nn.load(tmp_path / "whole").keys() == nn.load(tmp_path / "resumed").keys()
    for name, value in nn.load(tmp_path / "whole").items():
        assert (value.numpy() == nn.load(tmp_path / "resumed")[name].numpy()).all()


def test_a_seed_repeats_a_run_and_another_changes_it(capsys):
    def losses(seed):
        return json.loads(run(capsys, *SMALL, "--seed", seed, "--json")[1])["epochs"][0]["loss"]

    assert losses(1) == losses(1) != losses(2)


def test_float64_trains(capsys):
    assert run(capsys, *SMALL, "--dtype", "float64", "--quiet")[0] == 0


USAGE = {
    "dataset": (["train", "mnist2"], "'mnist2'"),
    "model": ([*SMALL, "--model", "vgg"], "'vgg'"),
    "dtype": ([*SMALL, "--dtype", "int8"], "'int8'"),
    "epochs": ([*SMALL, "--epochs", "0"], "'0' must be an integer of at least 1"),
    "batch size": ([*SMALL, "--batch-size", "-4"], "'-4' must be an integer of at least 1"),
    "lr": ([*SMALL, "--lr", "nan"], "'nan' must be a number above 0"),
    "seed": ([*SMALL, "--seed", "4294967296"], "must be an integer from 0"),
    "output without a name": ([*SMALL, "--save", ""], "argument --save: '' names no file or folder"),
    "folder without a name": (["train", "cifar10", "--data", " "], "argument --data: ' ' names no file or folder"),
    "option": ([*SMALL, "--fast"], "unrecognized arguments: --fast"),
    "no command": ([], "COMMAND"),
}


@pytest.mark.parametrize("case", USAGE)
def test_a_command_line_without_sense_is_one_line_and_code_2(capsys, case):
    arguments, message = USAGE[case]
    code, out, err = run(capsys, *arguments)

    assert (code, out) == (2, "")
    assert err.startswith("vtl: ")
    assert message in err
    assert err.count("\n") == 1


FAILURES = {
    "model of text": (
        ["--model", "lstm"],
        "--model lstm: LSTMClassifier reads token ids, and shapes holds images; take one of cnn, resnet18",
    ),
    "unknown device": (["--device", "gpu"], "device 'gpu': no such backend; there are cpu"),
    "malformed device": (["--device", "cpu:x"], "device 'cpu:x': must be"),
    "absent device": (["--device", "cpu:7"], "cpu:7"),
    "missing folder": (["--save", "{tmp}/no/w"], "--save: the folder"),
    "folder for a file": (["--save", "{tmp}"], "is a folder; give the name of a file"),
    "plot into a missing folder": (["--plot", "{tmp}/no/c.png"], "--plot: the folder"),
    "resume without a folder": (["--resume"], "--resume: give the folder of the checkpoints, --checkpoint DIR"),
    "resume from nothing": (["--resume", "--checkpoint", "{tmp}"], "--resume: there is no checkpoint in"),
    "one file twice": (["--plot", "{tmp}/./w"], "is --save too, and one would replace the other"),
    "one place twice": (["--checkpoint", "{tmp}/w"], "is --save too, and one would replace the other"),
    "empty data set": (["--subset", "0"], "the data set is empty"),
    "hopeless rate": (["--lr", "1e30"], "fit: the loss is "),
    "hopeless in its only step": (
        ["--lr", "1e30", "--batch-size", "96"],
        "fit: the validation loss is nan after epoch 1",
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_failure_is_one_line_and_code_1_and_leaves_nothing(capsys, tmp_path, case):
    options, message = FAILURES[case]
    code, _, err = run(
        capsys, *SMALL, "--save", tmp_path / "w", "--quiet", *(option.format(tmp=tmp_path) for option in options)
    )

    assert code == 1
    assert err.startswith("vtl: ")
    assert message in err
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_debug_shows_where(capsys):
    with pytest.raises(nn.TrainingError):
        main([*SMALL, "--subset", "0", "--debug"])


def test_a_missing_data_set_says_where_it_was_looked_for(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("vtl_data.cifar.download", lambda *_, **__: (_ for _ in ()).throw(OSError("no network")))
    code, _, err = run(capsys, "train", "cifar10", "--data", tmp_path)

    assert code == 1
    assert err.startswith(f"vtl: CIFAR10: not in {tmp_path}")
    assert "no network" in err
    assert "or vtl train shapes, which needs no files" in err
    assert err.count("\n") == 1


def test_the_command_is_named_by_its_path_where_it_lies_below(capsys, tmp_path, monkeypatch):
    """In the environment of a session, say, which is not on the user's PATH."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(tmp_path / "made" / "bin" / "vtl")])
    _, out, _ = run(capsys, *SMALL, "--save", "w.safetensors")

    called = Path("made", "bin", "vtl")
    assert f"measure them again: {called} eval shapes --weights w.safetensors" in out
    assert f"real images: {called} train cifar10" in out


def test_a_checkpoint_folder_with_a_run_in_it_is_not_overwritten(capsys, tmp_path):
    run(capsys, *SMALL, "--checkpoint", tmp_path / "run", "--quiet")
    code, _, err = run(capsys, *SMALL, "--checkpoint", tmp_path / "run")
    assert code == 1
    assert "holds a run; add --resume" in err

    code, _, err = run(capsys, *SMALL, "--checkpoint", tmp_path / "run", "--resume", "--lr", "0.1")
    assert code == 1
    assert "--resume: the checkpoint is of --lr 0.001, and 0.1 is asked for" in err


def test_weights_of_another_kind_are_refused(capsys, tmp_path):
    nn.save(nn.Linear(2, 2), tmp_path / "w")
    code, _, err = run(capsys, "eval", "shapes", "--weights", tmp_path / "w", "--subset", 8)
    assert code == 1
    assert "the state does not fit" in err
    nn.save(nn.Linear(2, 2), tmp_path / "w", metadata={"dataset": "cifar10"})
    assert "is of dataset 'cifar10'" in run(capsys, "eval", "shapes", "--weights", tmp_path / "w")[2]
    (tmp_path / "w").write_bytes(b"no weights")
    assert "no safetensors file" in run(capsys, "eval", "shapes", "--weights", tmp_path / "w")[2]
    assert "absent" in run(capsys, "eval", "shapes", "--weights", tmp_path / "absent")[2]


def test_a_file_in_the_place_of_the_checkpoints_is_named(capsys, tmp_path):
    (tmp_path / "run").write_text("a file")
    for folder in ("run", "run/inside"):
        code, _, err = run(capsys, *SMALL, "--checkpoint", tmp_path / folder)
        assert code == 1
        assert "--checkpoint: " in err
        assert "cannot be a folder: a file is in its place; name another" in err

    assert (tmp_path / "run").read_text() == "a file"


def test_weights_that_are_no_numbers_are_no_result(capsys, tmp_path):
    """NaN would also make the JSON invalid."""
    model = nn.models.SimpleCNN(10)
    nn.init.constant_(model[-1].bias, float("nan"))
    nn.save(model, tmp_path / "w")
    code, out, err = run(capsys, "eval", "shapes", "--weights", tmp_path / "w", "--subset", 8, "--json")

    assert (code, out) == (1, "")
    assert "the loss on the test images is nan" in err


def test_vtl_backend_falls_back_with_one_warning_unless_strict(capsys, monkeypatch):
    small = [a for a in SMALL if a not in ("--device", "cpu")]
    monkeypatch.setenv("VTL_BACKEND", "nothing")
    code, out, err = run(capsys, *small, "--quiet")
    assert code == 0
    assert "on cpu:0" in out
    assert err.startswith("vtl: VTL_BACKEND=nothing cannot be used, going on on the CPU: ")
    assert err.count("\n") == 1

    monkeypatch.setenv("VTL_BACKEND_STRICT", "0")  # only 1 is on
    assert run(capsys, *small, "--quiet")[0] == 0
    monkeypatch.setenv("VTL_BACKEND_STRICT", "1")
    code, _, err = run(capsys, *small)
    assert (code, err.count("\n")) == (1, 1)
    assert "no such backend" in err
    assert run(capsys, *SMALL, "--quiet")[0] == 0  # --device wins


def test_auto_without_a_gpu_is_the_cpu(capsys, monkeypatch):
    monkeypatch.setattr(
        "vsl_compute.registry.devices", lambda: __import__("vsl_compute.registry").registry.driver("cpu").devices()
    )
    code, out, _ = run(capsys, *SMALL, "--quiet", "--device", "auto")
    assert code == 0
    assert "on cpu:0" in out


def test_the_environment_is_read_in_one_file():
    files = sorted(Path(nn.__file__).parent.rglob("*.py"))
    assert [path.name for path in files if "os.environ" in path.read_text()] == ["settings.py"]


def test_the_command_is_installed_and_runs_as_a_module():
    result = subprocess.run(
        [sys.executable, "-m", "vtl_nn.cli", "train", "nothing"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert result.stderr.startswith("vtl: ")
    assert result.stderr.count("\n") == 1


def test_importing_loads_nothing_slow():
    script = "import sys, vtl_nn, vtl_nn.cli; print(*{'matplotlib', 'tqdm', 'safetensors', 'cupy', 'pyopencl', 'vulkan', 'torch'} & set(sys.modules))"
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip() == ""
    )


def test_every_public_name_is_there():
    for name in nn.__all__:
        assert getattr(nn, name) is not None
    assert "fit" in dir(nn)
    with pytest.raises(AttributeError, match="no attribute 'fot'"):
        nn.fot  # noqa: B018 - the access is what is tested


def test_measuring_again_is_said_with_the_folder_of_the_data(capsys, tmp_path):
    """Without it the command that is printed would look elsewhere, and download."""
    weights = tmp_path / "my weights"
    _, out, _ = run(capsys, *SMALL, "--save", weights, "--data", tmp_path / "da ta")

    assert f"eval shapes --data '{tmp_path / 'da ta'}' --weights '{weights}'" in out


def test_what_a_command_does_not_know_is_refused_with_its_own_help(capsys):
    assert run(capsys, "train", "shapes", "--foo")[::2] == (
        2,
        "vtl: unrecognized arguments: --foo; see vtl train --help\n",
    )


def test_a_training_that_is_stopped_says_what_is_left_of_it(capsys, tmp_path, monkeypatch):
    folder, stop = tmp_path / "run", [2]

    def stopping(self, training, epoch):
        said(self, training, epoch)
        if epoch.epoch == stop[0]:
            raise KeyboardInterrupt

    from vtl_nn.cli import train

    said = train._Report.on_epoch_end
    monkeypatch.setattr(train._Report, "on_epoch_end", stopping)
    code, _, err = run(capsys, *SMALL, "--epochs", "3")
    assert (code, err) == (
        130,
        "vtl: stopped by the keyboard; nothing was written: --checkpoint DIR keeps each epoch\n",
    )
    code, _, err = run(capsys, *SMALL, "--epochs", "3", "--checkpoint", folder)
    assert (code, err) == (
        130,
        f"vtl: stopped by the keyboard; {folder} has the epochs that are done: add --resume to go on\n",
    )
    stop[0] = 0
    code, out, _ = run(capsys, *SMALL, "--epochs", "3", "--checkpoint", folder, "--resume")
    assert code == 0
    assert out.startswith(f"resumed after epoch 1 from {folder}\n")


def test_a_warning_is_said_once(capsys):
    """VTL_BACKEND is asked in two places of a run."""
    from vtl_nn.cli import _said_once

    show = _said_once()
    for text in ("one", "one", "two"):
        show(UserWarning(text), UserWarning, "file.py", 3)
    assert capsys.readouterr().err == "vtl: one\nvtl: two\n"
