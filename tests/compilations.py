"""What XLA compiles, by name."""

import contextlib

from jax import monitoring


@contextlib.contextmanager
def count_compilations():
    """Yield a list that gets the name of each program, such as `jit(step)`, as it is compiled.

    An operation outside any jit is a program, too, and so is one from the persistent cache.
    """
    names = []

    def listen(event, _, **about):
        if event == "/jax/core/compile/backend_compile_duration":
            names.append(about.get("fun_name", ""))

    monitoring.register_event_duration_secs_listener(listen)
    try:
        yield names
    finally:
        monitoring.unregister_event_duration_listener(listen)
