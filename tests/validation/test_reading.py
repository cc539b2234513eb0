"""What `python -m ci.validation.reading` counts."""

import math
from pathlib import Path

from ci.validation import reading


def test_the_functions_that_a_call_enters_are_found_in_any_thread():
    import threading

    from myriad.errors import shown

    def call():
        thread = threading.Thread(target=shown, args=(1,))
        thread.start()
        thread.join()
        math.sqrt(2)

    found = reading.entered(call)
    assert "shown" in {code.co_name for code in found}
    assert {Path(code.co_filename).name for code in found} == {"errors.py"}
