"""Programs as texts: what a rename leaves alone, what counts as what, whose lines are added."""

from pathlib import Path

import pytest

from perfgate.hlo import (
    count_operations,
    normalise_hlo,
    normalise_stablehlo,
    read_instructions,
    read_program,
)
from perfgate.process.protocol import ProgramFiles

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")

HLO = """HloModule jit_step, is_scheduled=true, \
input_output_alias={ {0}: (0, {}, may-alias), {1}: (2, {}) }

FileNames
1 "/repo/model.py"

FileLocations
1 {file_name_id=1 function_name_id=1 line=5 end_line=5 column=25 end_column=32}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

ENTRY %main (x.1: f32[3], y.1: s64[]) -> (f32[3], f64[]) {
  %x.1 = f32[3]{0} parameter(0), metadata={op_name="x"}
  %copy.1 = f32[3]{0} copy(%x.1), metadata={op_name="jit(step)/copy" stack_frame_id=1}
  %wide = f64[2]{0} convert(%x.1), metadata={op_name="jit(f)/to f64[9]" \
source_file="/repo/old.py" source_line=7}
  %call = () custom-call(%x.1), custom_call_target="xla_ffi_python_cpu_callback", \
api_version=API_VERSION_TYPED_FFI
  ROOT %out = (f32[3]{0}, f64[2]{0}) tuple(%copy.1, %wide)
}
"""


def lowered(name, argument, extra=""):
    """Lower the same work under other names."""
    source = f"""
def {name}({argument}, other):
    def {name}_body(carry, _):
        return carry * 1.1 + other["a"].sum(){extra}, carry[0]
    return jax.lax.scan({name}_body, jnp.sin({argument}), None, length=7)
"""
    namespace = {"jax": jax, "jnp": jnp}
    # the names are what is varied
    exec(compile(source, f"{name}.py", "exec"), namespace)  # noqa: S102
    arguments = (jnp.zeros(100), {"a": jnp.ones(100)})
    return jax.jit(namespace[name], donate_argnums=0).lower(*arguments)


def test_a_rename_leaves_both_texts_as_they_were():
    one, other = lowered("step", "x"), lowered("renamed", "first_argument")
    assert one.as_text() != other.as_text()
    assert normalise_stablehlo(one.as_text()) == normalise_stablehlo(other.as_text())
    assert normalise_hlo(one.compile().as_text()) == normalise_hlo(other.compile().as_text())


def test_other_work_is_another_program():
    extras = ("", " + 1.0", " * 1.0000001", " - carry[1]")
    texts = {normalise_stablehlo(lowered("step", "x", extra).as_text()) for extra in extras}
    assert len(texts) == len(extras)


def test_the_target_of_a_custom_call_is_no_name_and_locations_are_left_out():
    text = "func.func @main() {{ stablehlo.custom_call @{}() }}"
    assert normalise_stablehlo(text.format("sort")) != normalise_stablehlo(text.format("topk"))
    body = "  %0 = stablehlo.add %a, %b : tensor<f32>"
    located = f'{body} loc("jit(f)/add"("f.py":3:1))'
    text = f"module @jit_f {{\n{located}\n}} loc(#loc)\n#loc = loc(unknown)"
    assert normalise_stablehlo(text) == f"module @s0 {{\n{body}\n}}"


def test_operations_are_counted_and_their_lines_read_from_old_and_new_metadata():
    counts = {"instructions": 5, "copies": 1, "custom_calls": 1, "host_callbacks": 1}
    counts |= {"wide_instructions": 2, "fusions": 0, "while_loops": 0, "loop_trips": 0}
    assert count_operations(HLO) == counts
    lines = {each.opcode: each.line for each in read_instructions(HLO, Path("/repo"))}
    others = dict.fromkeys(("parameter", "custom-call", "tuple"), "")
    assert lines == {"copy": "model.py:5", "convert": "old.py:7", **others}


def read(folder, context=None, executable=None, **texts):
    """Read a program of these texts as a worker writes it."""
    for name, text in texts.items():
        (folder / name).write_text(text)
    places = [str(folder / each) if each in texts else None for each in ("lowered", "optimised")]
    files = ProgramFiles(*places, context or {}, executable or {}, timed_is_program=True)
    return read_program(files, folder)


def test_flags_and_versions_are_part_of_the_identity(tmp_path):
    one, again, other = (
        read(tmp_path, {"jax": version, "XLA_FLAGS": ""}, lowered="module @jit_f {}")
        for version in "112"
    )
    assert one == again != other
    assert read(tmp_path) is None  # it offers no text


WITH_TABLE = HLO.replace("ROOT", "%table = f32[100]{0} constant({...})\n  ROOT", 1)


@pytest.mark.parametrize(
    ("texts", "known"),
    [
        ({"optimised": HLO}, True),
        ({"optimised": WITH_TABLE}, False),
        ({"lowered": "module @jit_f {}", "optimised": WITH_TABLE}, True),
    ],
)
def test_a_table_whose_values_the_text_leaves_out_may_have_changed(tmp_path, texts, known):
    assert read(tmp_path, **texts).timed_is_program is known


def test_peak_bytes_count_what_is_written_over_arguments_once(tmp_path):
    sizes = {"argument_bytes": 100.0, "output_bytes": 60.0, "temp_bytes": 7.0, "alias_bytes": 50.0}
    metrics = read(tmp_path, executable=sizes, optimised=HLO).metrics
    assert (metrics["peak_bytes"], metrics["undonated_bytes"]) == (117, 50)
