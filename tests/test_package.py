"""The face of the package: what is public, what a name answers, what an import costs."""

import re
from pathlib import Path

import pytest

import myriad
from myriad import list_agents, list_envs, make_env
from myriad.errors import InvalidArgumentError
from myriad.registry import Registry
from tests.child_processes import python


def test_all_names_what_is_public():
    assert all(getattr(myriad, name) is not None for name in myriad.__all__)
    assert set(myriad._HOMES) == set(myriad.__all__)


def test_an_import_pulls_in_nothing_heavy():
    heavy = {"jax", "numpy", "pandas", "matplotlib", "gymnax", "gymnasium", "optuna", "flax", "PIL"}
    # The command line answers a mistake without them, and the adapters without the libraries.
    parse = "from myriad.cli.arguments import parse; parse(['train', '--env=snake', '--agent=ppo'])"
    done = python("-c", f"import sys, myriad; {parse}; print(*sys.modules)")
    assert heavy.isdisjoint(done.stdout.split())
    assert done.stderr == ""
    # Arguments that fit are taken without the library that says what is wrong with others.
    rollout = "env = make_env('cartpole'); Rollout(env, make_agent('random', env), 8)"
    names = "from myriad import make_agent, make_env, Rollout"
    code = f"import sys, myriad.adapters; {names}; {rollout}"
    modules = python("-c", f"{code}; print(*sys.modules)").stdout.split()
    assert {"gymnax", "gymnasium", "flax", "pydantic"}.isdisjoint(modules)


def test_lists_are_sorted_and_leave_out_aliases_which_make_the_same_environment():
    for names in (list_envs(), list_agents()):
        assert names == sorted(names)
    for alias in ("cartpole", "CartPole-v1"):
        assert alias not in list_envs()
        assert make_env(alias) == make_env("cartpole-control")
    hard = make_env("bucket-brigade", scenario="hard", kappa=0.9).default_params
    assert (hard.beta, hard.kappa) == (pytest.approx(0.4), 0.9)  # an override wins


def test_a_registry_refuses_a_name_twice_and_takes_an_object():
    registry = Registry("thing", {"one": "math:pi"}, aliases={"ein": "one"})
    registry.add("two", 1)
    registry.add("two", 2)
    assert registry.load("two") == 2
    with pytest.raises(InvalidArgumentError, match="a new one without a colon, but got 'one'"):
        registry.add("one", 2)


def test_no_module_imports_one_above_it_by_a_string():
    """The linter of imports doesn't see such strings. The lazy names of the package are below."""
    named = re.compile(r"import_module\(\s*f?[\"']myriad")
    root = Path(myriad.__file__).parents[1]
    files = {
        path.relative_to(root).as_posix()
        for path in (root / "myriad").rglob("*.py")
        if named.search(path.read_text(encoding="utf-8"))
    }
    assert files == {"myriad/__init__.py"}
