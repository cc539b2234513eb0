"""`myriad doctor`: the settings, where each was set, and what is active on this machine."""

import collections
import dataclasses
from typing import Any

from myriad.cli.flags import table
from myriad.cli.training_flags import TrainingFlags
from myriad.errors import InvalidArgumentError, MyriadError
from myriad.files import unwritable
from myriad.settings import Settings, compilation_cache, home

# The environment and agent to show settings for, unless you name others.
_ENV, _AGENT = "cartpole-control", "ppo"


@dataclasses.dataclass(frozen=True)
class Doctor(TrainingFlags):
    """Show every setting, where it was set and what is active on this machine.

    `doctor` and `settings` are two names of one command. It takes the options of `myriad train` and
    shows what they would do, without training.
    """

    def run(self) -> int:
        """Print the settings, the machine and the folders; return 1 if there is a problem."""
        import jax

        from myriad.engine.machine import require_usable_jax

        problems = []
        try:
            require_usable_jax()
        except MyriadError as error:
            problems.append(str(error))
            # The tables are then those of the CPU.
            jax.config.update("jax_platforms", "cpu")
            jax.config.update("jax_platform_name", "cpu")
        problems += self._print_training()
        print("\nvariables, of the environment and of .env\n")
        settings = Settings.read()
        rows = [("variable", "value", "what it does", "wins over it")]
        for name, setting in Settings.table().items():
            value = getattr(settings, name)
            source = settings.sources.get(name, setting.variable)
            shown = "not set" if value is None else str(value)
            rows.append((source, shown, setting.meaning, setting.flag or "-"))
        print(f"{table(rows)}\n")
        problems += _print_machine()
        for problem in problems:
            print(f"problem    {problem}")
        return 1 if problems else 0

    def _print_training(self) -> list[str]:
        """Print what is active in the training, and return the problems."""
        from myriad.training.active_settings import ActiveSetting, active_settings
        from myriad.training.config import make_config

        flags = self
        if self.config is None:
            named = {"env": self.env or _ENV, "agent": self.agent or _AGENT}
            given = {name: f"--{name}" for name in named} | self.given
            flags = dataclasses.replace(self, **named, given=given)
        fields, sources = flags.fields()
        try:
            # Without the autotuner, which would take minutes.
            config = make_config(**fields)
        except InvalidArgumentError as error:
            print(f"settings of {fields['agent']} on {fields['env']}: refused")
            return [str(error)]
        settings: list[ActiveSetting] = active_settings(config, sources)
        settings.append(_trackers(config.log_to, sources.get("log_to", "default")))
        print(f"settings of {config.agent} on {config.env}\n")
        rows = [("setting", "value", "from", "active", "why", "overridden by")]
        for each in settings:
            active = "yes" if each.active else "no"
            rows.append((each.name, each.value, each.source, active, each.reason, each.flag or "-"))
        print(table(rows))
        # Flash attention is left out, since one `.env` serves machines that have it and others.
        return [
            f"{each.source} asks for {each.name}: {each.reason}"
            for each in settings
            if each.denied and each.name != "attention"
        ]


def _trackers(names: list[str], source: str) -> Any:
    from myriad.training.active_settings import ActiveSetting
    from myriad.training.callbacks.trackers import require_trackers

    reason = "rows go there, too" if names else "rows go to the run's folder"
    denied = False
    try:
        require_trackers(names)
    except MyriadError as error:
        reason = str(error)
        denied = True
    return ActiveSetting(
        "trackers",
        ", ".join(names) or "none",
        source,
        active=bool(names) and not denied,
        reason=reason,
        flag="--log-to, --wandb",
        denied=denied,
    )


def _print_machine() -> list[str]:
    """Print the machine, the versions and the folders, and return the folders' problems."""
    import jax

    from myriad.engine.machine import fingerprint, is_configured, package_versions

    machine = fingerprint()
    memory = "memory unknown"
    total, free = machine.memory_total_bytes, machine.memory_available_bytes
    if total is not None and free is not None:
        memory = f"{total / 2**30:.1f} GiB of memory ({free / 2**30:.1f} GiB free)"
    print(f"machine    {machine.device_name}, {machine.cores} cores, {memory}")
    kinds = collections.Counter(device.device_kind for device in jax.local_devices())
    print(f"devices    {', '.join(f'{count} x {kind}' for kind, count in kinds.items())}")
    versions = package_versions()
    print(f"versions   {', '.join(f'{name} {of}' for name, of in versions.items())}")
    configured = "yes" if is_configured() else "no: XLA runs without Myriad's options"
    print(f"configured {configured}")
    problems = []
    for name, find in (("kept in", home), ("compiled", compilation_cache)):
        try:
            folder = find()
        except InvalidArgumentError as error:
            print(f"{name:<10} nowhere")
            problems.append(f"{name}: {error}")
            continue
        problem = None if folder is None else unwritable(folder)
        state = "off" if folder is None else f"{folder} ({problem or 'can be written'})"
        print(f"{name:<10} {state}")
        problems += [f"{name}: {folder} {problem}"] if problem else []
    return problems
