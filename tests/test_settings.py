"""What you set outside a command: which source wins, and what is refused in which words."""

import dataclasses
import errno
import functools
import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from myriad import api, create_config, presets, settings
from myriad.cli import main, parse
from myriad.cli.switches import SWITCH_OF
from myriad.errors import InvalidArgumentError
from myriad.settings import Settings
from myriad.training.config import TrainingConfig
from tests.attack.outcomes import contents

VARIABLES = ("HOME", "XDG_CACHE_HOME", "MYRIAD_HOME", "MYRIAD_COMPILATION_CACHE")


SMALL = ["--num-envs", "2", "--steps-per-env", "64", "--eval-rollouts", "2"]
SMALL += ["--eval-max-steps", "8"]
CARTPOLE = ["train", "--env", "cartpole", "--agent"]
ROWS = "an integer from 1 to 2,147,483,647"
# The variables, what is wrong with a value, and what a message says of it.
WRONG_ROWS = [
    ("8k", "'8k'"),
    ("", "nothing"),
    ("-8", "'-8'"),
    ("0", "'0'"),
    ("1.5", "'1.5'"),
    ("2147483648", "'2147483648'"),
    ("9" * 5000, "'99999"),
]
BATCH = "the batch of num_envs x rollout_steps = 128"
WRONG_SWITCHES = [("ture", "'ture'"), ("", "nothing"), ("2", "'2'"), ("-1", "'-1'")]
WRONG = [("OPTIMAL_BATCH_SIZE", *each, ROWS) for each in WRONG_ROWS]
WRONG += [
    (name, *each, "true or false")
    for name in ("USE_COMPILE", "USE_TORCH_COMPILE", "USE_FLASH_ATTENTION", "USE_BF16")
    for each in WRONG_SWITCHES
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Work in an empty folder, without a setting in the environment."""
    monkeypatch.setattr(settings, "_exported", {})
    before = dict(os.environ)
    for setting in Settings.table().values():
        for name in setting.names:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MYRIAD_COMPILATION_CACHE", before["MYRIAD_COMPILATION_CACHE"])
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    # A command exports what the file says of places.
    os.environ.pop("MYRIAD_HOME", None)
    os.environ.pop("MYRIAD_WITHOUT_XLA_OPTIONS", None)


@pytest.fixture
def refused(folder, capsys):
    """Run a command that is refused; return its sentence. It writes nothing."""

    def run(*argv):
        before = contents(folder)
        capsys.readouterr()
        assert main(argv) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == 1
        assert contents(folder) == before
        return said.err.rstrip("\n")

    return run


def in_environment(folder, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    return name


def in_file(folder, monkeypatch, name, value):
    (folder / ".env").write_text(f"# ours\n{name}={value}\n")
    return f"{name} of .env"


@pytest.mark.parametrize("put", [in_environment, in_file])
@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: f"{wrong[0]}={wrong[1][:10]}")
@pytest.mark.parametrize("command", ["train", "doctor"])
def test_a_value_that_a_variable_cannot_have_is_refused_with_its_source(
    command, wrong, put, refused, folder, monkeypatch
):
    name, value, shown, allowed = wrong
    source = put(folder, monkeypatch, name, value)
    said = refused(command, "--env", "cartpole", "--agent", "ppo")
    assert said.startswith(f"{source} must be {allowed}, but is {shown}")
    assert said.endswith("; correct or unset it.")
    assert len(said) < 200


@pytest.mark.parametrize("put", [in_environment, in_file])
@pytest.mark.parametrize("command", [["envs"], ["train"], ["autotune", "--show"]])
def test_a_misspelt_variable_is_answered_with_the_closest(
    command, put, refused, folder, monkeypatch
):
    source = put(folder, monkeypatch, "MYRIAD_COMPILATON_CACHE", "off")
    said = refused(*command)
    assert said == f"{source} is not a setting; did you mean MYRIAD_COMPILATION_CACHE?"


@pytest.mark.parametrize("put", [in_environment, in_file])
def test_an_unknown_option_of_xla_is_refused_with_its_source(put, refused, folder, monkeypatch):
    source = put(folder, monkeypatch, "MYRIAD_WITHOUT_XLA_OPTIONS", "xla_cpu_fast")
    assert refused("envs").startswith(f"{source}: unknown XLA option 'xla_cpu_fast'")


@pytest.mark.parametrize("put", [in_environment, in_file])
def test_variables_of_others_pass(put, folder, monkeypatch):
    for name in ("MYRIAD_TIER", "MYRIAD_ZQX", "USE_SOMETHING", "OPTIMAL_BATCH"):
        put(folder, monkeypatch, name, "8k")
        assert main(["envs"]) == 0


MUST = "MYRIAD_HOME of .env must be"


def a_pipe(file):
    os.mkfifo(file)


def a_loop(file):
    file.symlink_to(file)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (a_pipe, ".env can't be read: it is a folder, a device or a pipe, not a file."),
        (a_loop, ".env can't be read: Too many levels of symbolic links."),
        (b"USE_BF16=true\n\xff\n", ".env can't be read: it is not UTF-8."),
        (
            b"A=1\nUSE_BF16 true\n",
            ".env, line 2, must be NAME=value or a comment; correct or remove it.",
        ),
        (
            b"A=1\n" * 10_000,
            ".env can't be read: it has 40,000 bytes, but may have at most 32,768.",
        ),
        (
            b"HOME=/a\nMYRIAD_HOME=${HOME}/b\n",
            f"{MUST} written out, since ${{...}} is not replaced, but is '${{HOME}}/b'.",
        ),
        (
            b'MYRIAD_HOME="a\0b"\n',
            f"{MUST} {settings._TEXT}, but is 'a\\x00b'; correct or unset it.",
        ),
    ],
)
@pytest.mark.parametrize("command", [["envs"], [*CARTPOLE, "pid", "--batch-size", "8"]])
def test_a_file_that_cannot_be_read_is_refused_by_every_command(
    command, make, sentence, refused, folder
):
    if isinstance(make, bytes):
        (folder / ".env").write_bytes(make)
    else:
        make(folder / ".env")
    assert refused(*command) == sentence


def test_a_file_without_permission_is_refused(folder, capsys):
    (folder / ".env").write_text("A=1\n")

    def denied(self, *_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    # The superuser may read any file, and tests run as that in containers.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "open", denied)
        assert main(["envs"]) == 2
    assert capsys.readouterr().err == ".env can't be read: Permission denied.\n"


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--batch-size", ""], "--batch-size is empty"),
        (["--batch-size", "0"], f"--batch-size must be {ROWS}, but got 0."),
        (["--batch-size", str(2**31)], f"--batch-size must be {ROWS}, but got 2147483648."),
        (
            ["--batch-size", "300"],
            f"--batch-size must divide {BATCH}, such as 128, but",
        ),
        (
            ["--batch-size", "33"],
            f"--batch-size must divide {BATCH}, such as 32 or 64",
        ),
        (
            ["--batch-size", "64", "--agent.num-minibatches", "4"],
            "batch_size and num_minibatches say the same, so only one",
        ),
        (["--compile-mode="], "--compile-mode is empty"),
        (["--compile=ture"], "--compile takes no value: write --compile or --no-compile, but got"),
        (["--no-bf16=1"], "--no-bf16 takes no value: write --bf16 or --no-bf16, but got"),
        (["--compile", "--compile-mode", "jit"], "--compile and --compile-mode say the same"),
        (
            ["--flash-attention"],
            "--flash-attention is for agents with the network attention, and this ppo has none.",
        ),
        (
            ["--agent.compute-dtype", "float16", "--agent.loss-scaling", "off"],
            "--agent.loss-scaling must be 'dynamic' ",
        ),
        (
            ["--agent.compute-dtype", "fp16"],
            "unknown compute_dtype 'fp16'. Known: bfloat16, float16,",
        ),
        (["--bf16", "--agent.compute-dtype", "float16"], "--bf16 and --agent.compute-dtype say"),
        (["--comple"], "`myriad train` has no option --comple; did you mean --compile?"),
        (["--wandb-name", "x"], "--wandb-name is for a run that logs to Weights & Biases: give"),
    ],
)
def test_a_flag_that_cannot_be_used_is_refused(flags, sentence, refused):
    said = refused(*CARTPOLE, "ppo", *SMALL, *flags)
    assert said.startswith(sentence), said


@pytest.mark.skipif(jax.default_backend() == "gpu", reason="a GPU has cudnn")
@pytest.mark.parametrize("agent", ["ppo", "pqn", "dqn"])
@pytest.mark.parametrize("by_flag", [True, False])
def test_cudnn_is_refused_where_there_is_no_gpu(agent, by_flag, refused, folder):
    table = '[agent_options]\nnetwork = "attention"\nattention = "cudnn"\n'
    (folder / "mine.toml").write_text(table)
    flags = ["--agent.network", "attention", "--agent.attention", "cudnn"]
    argv = [*SMALL, "--bf16", *(flags if by_flag else ["--config", "mine.toml"])]
    said = refused("train", "--env", "snake", "--agent", agent, *argv)
    name = "--agent.attention" if by_flag else "mine.toml: agent_options.attention"
    assert said.startswith(f"{name} must be auto, reference, xla or chunked here, but got 'cudnn'")


def test_a_variable_chooses_attention_for_the_network_that_has_it_alone(folder, monkeypatch):
    monkeypatch.setenv("USE_FLASH_ATTENTION", "true")
    snake = ["train", "--env", "snake", "--agent", "ppo"]
    config, sources = parse(snake).described()
    assert "attention" not in config.agent_options
    assert sources["agent.attention"] == "USE_FLASH_ATTENTION"
    config, _ = parse([*snake, "--agent.network", "attention"]).described()
    assert config.agent_options["attention"] in ("chunked", "cudnn")
    config, _ = parse([*snake, "--agent.network", "attention", "--no-flash-attention"]).described()
    assert config.agent_options["attention"] == "xla"


@pytest.mark.parametrize(
    ("variable", "flag", "dtype"),
    [("true", None, "bfloat16"), ("false", "--bf16", "bfloat16"), ("1", "--no-bf16", "float32")],
)
@pytest.mark.parametrize("agent", ["ppo", "pqn", "dqn"])
def test_a_switch_chooses_the_dtype_of_every_network(
    agent, variable, flag, dtype, folder, monkeypatch
):
    monkeypatch.setenv("USE_BF16", variable)
    argv = [*CARTPOLE, agent, *([flag] if flag else [])]
    assert parse(argv).training().agent_options["compute_dtype"] == dtype


@pytest.mark.parametrize("words", [["--target-return", "none"], ["--target-return=none"]])
def test_none_turns_off_the_target_of_a_file(words, folder):
    (folder / "mine.toml").write_text("target_return = 475.0\n")
    argv = [*CARTPOLE, "ppo", "--config", "mine.toml"]
    assert parse(argv).training().target_return == 475
    assert parse([*argv, *words]).training().target_return is None


@pytest.mark.parametrize("agent", ["ppo", "random"])
def test_a_switch_turns_off_what_is_not_on(agent):
    off = [f"--no-{name}" for name in ("flash-attention", "bf16", "wandb", "auto-tune")]
    with_off, without = (
        parse([*CARTPOLE, agent, *flags]).training().resolve().config for flags in (off, [])
    )
    assert with_off == without


@pytest.mark.parametrize("agent", ["pid", "bangbang", "random"])
@pytest.mark.parametrize(
    ("flags", "needs"),
    [
        (["--bf16"], "--bf16 is for agents with a network, and this {} has none."),
        (["--flash-attention"], "--flash-attention is for agents with the network attention, and"),
        (["--batch-size", "8"], "--batch-size is for agents that learn, and {} takes no gradient"),
    ],
)
def test_a_flag_that_the_agent_has_no_use_for_is_refused(agent, flags, needs, refused):
    assert refused(*CARTPOLE, agent, *SMALL, *flags).startswith(needs.format(agent))


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('batch_size = "8k"', f"batch_size must be {ROWS}, but got '8k'."),
        ("batch_size = 33", "batch_size must divide the batch of num_envs x rollout_steps = 128"),
        ('compile_mode = "ture"', "compile_mode must be 'aot', 'cached', 'jit' or 'off', but got"),
        ('wandb_tags = [""]', "wandb_tags.0 "),
        ('[agent_options]\ncompute_dtype = "fp16"', "unknown compute_dtype 'fp16'. Known: bf"),
    ],
)
def test_a_value_of_a_file_is_refused_with_the_file(line, sentence, refused, folder):
    (folder / "mine.toml").write_text(f"{line}\n")
    said = refused(*CARTPOLE, "ppo", *SMALL, "--config", "mine.toml")
    assert said.startswith(f"mine.toml: {sentence}"), said


# --- which source wins ---

LEVELS = ("flag", "config", "environment", ".env", "preset", "default")
SIZES = dict(zip(LEVELS, (8, 16, 32, 64, 256, 128), strict=True))
PPO = ["--env", "cartpole", "--agent", "ppo", "--num-envs", "16", "--rollout-steps", "64"]


@pytest.mark.slow
@given(st.sets(st.sampled_from(LEVELS[:-1])), st.booleans(), st.booleans())
@example(given_by=set(LEVELS[:-1]), flag_counts=False, file_counts=False)
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_the_first_of_six_sources_that_says_the_batch_size_wins(
    folder, given_by, flag_counts, file_counts
):
    """Whether a flag or a file says it by rows or by the number of minibatches."""
    (folder / "ppo.toml").write_text('[mine]\n"agent.num_minibatches" = 4\n')
    config = ["", "batch_size = 16", "[agent_options]\nnum_minibatches = 64"]
    (folder / "mine.toml").write_text(config[("config" in given_by) * (1 + file_counts)])
    dotenv = f"OPTIMAL_BATCH_SIZE={SIZES['.env']}\n" if ".env" in given_by else ""
    (folder / ".env").write_text(dotenv)
    flags = ["--agent.num-minibatches", "128"] if flag_counts else ["--batch-size", "8"]
    argv = ["train", *PPO, "--config", "mine.toml", *(flags if "flag" in given_by else [])]
    argv += ["--preset", "mine"] if "preset" in given_by else []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(presets, "FOLDER", folder)
        if "environment" in given_by:
            patch.setenv("OPTIMAL_BATCH_SIZE", str(SIZES["environment"]))
        learner = parse(argv).training().resolve().learner
    winner = next(level for level in LEVELS if level in given_by or level == "default")
    assert 1024 // learner.num_minibatches == SIZES[winner]


@pytest.mark.slow
@given(
    st.sampled_from([None, "--compile", "--no-compile"]),
    st.sampled_from([None, "cached", "off"]),
    *[st.sampled_from([None, "true", "off"])] * 4,
)
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_the_first_source_that_says_whether_to_compile_wins(
    folder, flag, file, own, alias, own_in_file, alias_in_file
):
    """An alias yields to the variable's own name in the same place."""
    (folder / "mine.toml").write_text(f'compile_mode = "{file}"\n' if file else "")
    names = {"USE_COMPILE": own_in_file, "USE_TORCH_COMPILE": alias_in_file}
    (folder / ".env").write_text("".join(f"{k}={v}\n" for k, v in names.items() if v))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"USE_COMPILE": own, "USE_TORCH_COMPILE": alias}.items():
            if value:
                patch.setenv(name, value)
        argv = ["train", *PPO, "--config", "mine.toml", *([flag] if flag else [])]
        config, sources = parse(argv).described()
    variable = own or alias or own_in_file or alias_in_file
    modes = {"--compile": "aot", "--no-compile": "off", "true": "aot", "off": "off", None: "aot"}
    assert config.compile_mode == (modes[flag] if flag else file or modes[variable])
    if not flag and not file and variable:
        name = "USE_COMPILE" if own or (not alias and own_in_file) else "USE_TORCH_COMPILE"
        assert sources["compile_mode"] == (name if own or alias else f"{name} of .env")


def test_a_call_takes_what_it_is_given_wherever_it_is_called(folder, monkeypatch):
    expected = create_config("cartpole", "ppo")
    (folder / ".env").write_text("OPTIMAL_BATCH_SIZE=8k\nUSE_COMPILE=ture\n")
    monkeypatch.setenv("USE_BF16", "ture")
    monkeypatch.setenv("OPTIMAL_BATCH_SIZE", "64")
    assert create_config("cartpole", "ppo") == expected
    assert expected.compile_mode == "aot"


@pytest.mark.parametrize("put", [in_environment, in_file])
def test_a_variable_that_does_not_fit_the_training_is_refused_with_its_source(
    put, refused, folder, monkeypatch
):
    source = put(folder, monkeypatch, "OPTIMAL_BATCH_SIZE", "33")
    assert refused(*CARTPOLE, "ppo", *SMALL) == (
        f"{source}: batch_size must divide the batch of num_envs x rollout_steps = 128, such as 32 "
        "or 64, but is 33."
    )


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["ppo", "pqn", "dqn"])
def test_the_batch_size_is_the_rows_of_a_gradient_step_of_every_learner(
    agent, folder, monkeypatch, capsys
):
    """The summary of the run and its record say so."""
    monkeypatch.setenv("OPTIMAL_BATCH_SIZE", "32")
    assert main([*CARTPOLE, agent, *SMALL, "--run-folder", "run"]) == 0
    assert "; compile aot" in capsys.readouterr().err
    record = json.loads(Path("run/environment.json").read_text())
    batch = next(each for each in record["settings"] if each["name"] == "batch")
    assert (batch["value"], batch["source"]) == ("32 rows", "OPTIMAL_BATCH_SIZE")
    learner = TrainingConfig.from_toml(Path("run/config.toml").read_text()).resolve().learner
    if agent == "dqn":
        assert learner.batch_size == 32
    else:
        assert 2 * learner.rollout_steps // learner.num_minibatches == 32


@pytest.mark.slow
def test_a_run_that_goes_on_reads_no_setting_that_it_has_stored(folder, monkeypatch, capsys):
    monkeypatch.setenv("OPTIMAL_BATCH_SIZE", "32")
    assert main([*CARTPOLE, "ppo", *SMALL, "--run-folder", "run", "--quiet"]) == 0
    before = Path("run/config.toml").read_text()
    monkeypatch.setenv("OPTIMAL_BATCH_SIZE", "8k")
    (folder / ".env").write_text("USE_COMPILE=ture\nUSE_BF16=\n")
    capsys.readouterr()
    assert main(["train", "--resume", "run"]) == 0
    assert Path("run/config.toml").read_text() == before
    assert "compile aot (config.toml)" in capsys.readouterr().err
    assert main(["train", "--resume", "run", "--batch-size", "32"]) == 2
    said = "--resume continues a run with its own settings, so --batch-size can't be given.\n"
    assert capsys.readouterr().err == said


def test_the_places_of_a_file_are_followed_and_named(folder, capsys):
    (folder / ".env").write_text(f"MYRIAD_HOME={folder}/kept\n")
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "MYRIAD_HOME of .env " in said
    assert "/kept (can be written)" in said


# --- a flag that is given ---


def test_a_flag_that_says_the_default_still_wins_over_a_file(folder):
    (folder / "mine.toml").write_text(
        'seed = 3\ntarget_return = 475.0\nlog_to = ["tensorboard"]\ncompile_mode = "jit"\n'
    )
    argv = ["train", *PPO, "--config", "mine.toml"]
    config = parse(argv).training()
    assert (config.seed, config.target_return, config.log_to) == (3, 475.0, ["tensorboard"])
    flags = ["--seed", "0", "--target-return", "None", "--compile-mode=aot", "--log-to"]
    config = parse([*argv, *flags]).training()
    assert (config.seed, config.target_return, config.log_to) == (0, None, [])
    assert config.compile_mode == "aot"


@pytest.mark.parametrize(
    ("flags", "tunes"), [([], True), (["--no-auto-tune"], False), (["--auto-tune"], True)]
)
def test_no_auto_tune_keeps_a_preset_from_tuning(flags, tunes, folder, monkeypatch):
    (folder / "ppo.toml").write_text("[mine]\nauto_tune = true\n")
    monkeypatch.setattr(presets, "FOLDER", folder)
    tuned = []

    def record(config):
        tuned.append(config)
        return dataclasses.make_dataclass("Suggestion", ["scan_chunk_size"])(64)

    monkeypatch.setattr(api, "autotune", record)
    config = parse(["train", *PPO, "--preset", "mine", *flags]).training()
    assert len(tuned) == tunes
    assert config.scan_chunk_size == (64 if tunes else None)


@pytest.mark.parametrize("flag", ["--wandb", "--no-wandb"])
def test_a_switch_adds_or_removes_one_tracker(flag, folder):
    (folder / "mine.toml").write_text('log_to = ["tensorboard", "wandb"]\n')
    config = parse(["train", *PPO, "--config", "mine.toml", flag]).training()
    assert config.log_to == ["tensorboard", *(["wandb"] if flag == "--wandb" else [])]


def test_names_of_a_run_at_weights_and_biases_come_from_flags_or_variables(folder, monkeypatch):
    monkeypatch.setenv("WANDB_PROJECT", "of-environment")
    (folder / ".env").write_text("WANDB_NAME=of-file\nWANDB_TAGS=a, b\n")
    argv = ["train", *PPO, "--wandb"]
    config = parse(argv).training()
    assert (config.wandb_project, config.wandb_name) == ("of-environment", "of-file")
    assert config.wandb_tags == ["a", "b"]
    config = parse([*argv, "--wandb-project", "mine", "--wandb-tags", "c", "d"]).training()
    assert (config.wandb_project, config.wandb_tags) == ("mine", ["c", "d"])
    assert parse(["train", *PPO]).training().wandb_project is None


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("bf16", "agent.compute_dtype"),
        ("USE_FLASH_ATTENTION", "agent.attention"),
        ("compile", "compile_mode"),
        ("OPTIMAL_BATCH_SIZE", "batch_size"),
    ],
)
def test_a_switch_in_python_is_answered_with_the_field_behind_it(name, field):
    with pytest.raises(InvalidArgumentError, match=f"^{name} is not a field .*: set {field} "):
        create_config("cartpole-control", "ppo", **{name: True})


def test_a_new_run_stores_the_names_of_the_environment(monkeypatch):
    monkeypatch.setenv("WANDB_PROJECT", "poles")
    resolved = create_config("cartpole-control", "pid", log_to=["wandb"]).resolve()
    named = resolved.logged_as(settings.wandb_names()).config
    assert (named.wandb_project, named.wandb_name) == ("poles", None)
    chosen = create_config("cartpole-control", "pid", log_to=["wandb"], wandb_project="mine")
    assert chosen.resolve().logged_as({"project": "poles"}).config.wandb_project == "mine"
    other = create_config("cartpole-control", "pid").resolve()
    assert other.logged_as({"project": "poles"}) is other
    with pytest.raises(InvalidArgumentError, match=r"^wandb_name .* at most 128 characters"):
        resolved.logged_as({"name": "x" * 129})


def test_a_training_reads_the_file_of_its_folder_once(folder, monkeypatch):
    (folder / ".env").write_text("OPTIMAL_BATCH_SIZE=32\n")
    read = []
    monkeypatch.setattr(Settings, "read", functools.partial(_counted, Settings.read, read))
    parse(["train", *PPO]).training()
    assert len(read) == 1


def _counted(function, calls, *args, **kwargs):
    calls.append(args)
    return function(*args, **kwargs)


def test_every_switch_is_a_setting_with_its_flag():
    assert set(SWITCH_OF.values()) == Settings().table().keys() & {*SWITCH_OF.values()}
    for name, setting in Settings.table().items():
        assert setting.flag in ("", f"--{name.replace('_', '-')}", "--without-xla-option")


@pytest.mark.slow
def test_help_and_mistakes_load_no_jax():
    code = (
        "import sys; from myriad.cli import parse; parse(sys.argv[1:]); print('jax' in sys.modules)"
    )
    command = [sys.executable, "-c", code, "train", *PPO]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"


# --- where things are kept, also for a user whom the system does not know ---


@pytest.fixture
def nobody(monkeypatch):
    """Be a user without a home folder."""

    def unknown(number):
        raise KeyError(f"getpwuid(): uid not found: {number}")

    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)


@pytest.mark.slow
@pytest.mark.usefixtures("nobody")
def test_without_a_home_folder_a_training_keeps_no_programs_and_goes_on(tmp_path):
    assert settings.compilation_cache() is None
    run = ["train", "--env", "cartpole", "--agent", "pid", "--num-envs", "2"]
    run += ["--steps-per-env", "64", "--run-folder", str(tmp_path / "run"), "--quiet"]
    assert main(run) == 0


@pytest.mark.usefixtures("nobody")
def test_without_a_home_folder_the_autotuner_says_what_to_set(capsys):
    with pytest.raises(InvalidArgumentError):
        settings.home()
    assert main(["autotune", "--show"]) == 2
    assert capsys.readouterr().err == (
        "this user has no home folder to keep results in: set MYRIAD_HOME to a folder.\n"
    )


@pytest.mark.usefixtures("nobody")
def test_variables_name_the_folders_of_a_user_without_a_home(monkeypatch):
    monkeypatch.setenv("MYRIAD_HOME", "/kept")
    assert settings.home() == Path("/kept")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert settings.compilation_cache() is None
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert settings.compilation_cache() == Path("/caches/myriad/xla")
    monkeypatch.setenv("MYRIAD_COMPILATION_CACHE", "off")
    assert settings.compilation_cache() is None


@pytest.mark.parametrize("flag", ["bf16", "compile", "wandb", "flash-attention"])
def test_both_positions_of_a_flag_contradict_each_other(flag, capsys):
    words = ["train", "--env", "snake", "--agent", "ppo", f"--{flag}", f"--no-{flag}"]
    assert main(words) == 2
    said = f"--{flag} and --no-{flag} contradict each other: give one of them."
    assert said in capsys.readouterr().err


def test_a_resumed_run_names_a_switch_as_it_was_given(capsys, tmp_path):
    assert main(["train", "--resume", str(tmp_path), "--no-compile"]) == 2
    assert "so --no-compile can't be given" in capsys.readouterr().err
