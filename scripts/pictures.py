"""Make the pictures of the pages: films of trained agents, a plot, and the notebooks' outputs.

`make docs` runs it. It writes to `docs/pictures/`, which isn't committed. `docs/conf.py` puts a
picture where a page says `<!-- picture NAME: what it shows -->`.
"""

import ast
import base64
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"
PICTURES = DOCS / "pictures"
NOTEBOOKS = ("own_environment", "own_loop", "tuning")
# A training for each environment, the steps of its film, and the seed of the episode.
FILMS: dict[str, tuple[dict[str, Any], int, int]] = {
    "cartpole-control": ({"agent": "ppo", "target_return": 475.0, "seed": 1}, 100, 3),
    "pendulum-control": ({"agent": "sac", "target_return": -200.0}, 100, 7),
    "gene-circuit-control": ({"agent": "ppo", "num_envs": 64, "total_steps": 200_000}, 100, 3),
    "snake": ({"agent": "ppo", "num_envs": 256, "total_steps": 2_000_000}, 150, 3),
    "bucket-brigade": ({"agent": "ppo", "num_envs": 64, "total_steps": 300_000}, 30, 3),
}
# The tutorial's experiment.
RATES = (0.0005, 0.00005)
CURVES = "learning_curves.png"
FILES = {CURVES, *(f"{env}.{suffix}" for env in FILMS for suffix in ("gif", "png"))}


def main(notebooks: list[str]) -> None:
    """Make all pictures, or run the notebooks of these names."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        if notebooks:
            for name in notebooks:
                run_notebook(DOCS / "notebooks" / f"{name}.ipynb")
            return
        for name in NOTEBOOKS:  # each in a process of its own, as in Jupyter
            subprocess.run([sys.executable, __file__, name], check=True)
        film_agents()
        draw_curves()


def film_agents() -> None:
    """Train an agent in each environment and film it. A still picture is the middle of the film."""
    from PIL import Image

    from myriad import configure, create_config, load_agent, train_and_evaluate
    from myriad.rendering.video import record

    configure()
    for name, (fields, num_steps, seed) in FILMS.items():
        results = train_and_evaluate(create_config(name, **fields), name, quiet=True)
        _, env, agent = load_agent(name)
        film = record(env, agent, PICTURES / f"{name}.gif", num_steps=num_steps, seed=seed)
        with Image.open(film.path) as frames:
            frames.seek(frames.n_frames // 2)
            frames.convert("RGB").save(film.path.with_suffix(".png"))
        last = results.evaluations[-1]
        print(f"{name}: return {last['return']:.4g} after {last['steps']:,} steps", flush=True)


def draw_curves() -> None:
    """Draw the learning curves of the tutorial."""
    from myriad import create_config, train_and_evaluate
    from myriad.training.curves import plot_runs

    folders = []
    for rate in RATES:
        fields = {"seeds": range(8), "steps_per_env": 2_000, "agent.learning_rate": rate}
        folders.append(f"rate-{rate}")
        train_and_evaluate(create_config("cartpole", "ppo", **fields), folders[-1], quiet=True)
    plot_runs(folders, PICTURES / CURVES)
    print(CURVES, flush=True)


def run_notebook(path: Path) -> None:
    """Run a notebook's cells, and write it with their outputs, as Jupyter would."""
    notebook = json.loads(path.read_text())
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = run_cell("".join(cell["source"]), names)
    (PICTURES / f"{path.stem}.json").write_text(json.dumps(notebook))
    print(path.stem, flush=True)


def run_cell(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell in a namespace; return what it printed and the value of a last expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        exec(compile(tree, "<cell>", "exec"), names)  # noqa: S102 (our own notebooks)
        value: Any = last and eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)  # noqa: S307
    outputs: list[dict[str, Any]] = [{"text": printed.getvalue()}] if printed.getvalue() else []
    if hasattr(value, "_repr_png_"):
        outputs.append({"data": {"image/png": base64.b64encode(value._repr_png_()).decode()}})
    elif value is not None:
        outputs.append({"data": {"text/plain": repr(value)}})
    return outputs


if __name__ == "__main__":
    main(sys.argv[1:])
