"""How the files of the keys are found."""

import subprocess
import sys

from kafkalite.api import find_handlers


def test_every_file_of_a_key_is_what_its_name_says() -> None:
    handlers = find_handlers()
    assert handlers[19].name == "CreateTopics"
    for handler in handlers.values():
        assert callable(handler.handle)


def test_the_keys_are_known_before_their_files_are_imported() -> None:
    script = (
        "import sys\n"
        "from kafkalite.api import find_handlers\n"
        "found = find_handlers()\n"
        "print([name for name in sys.modules if name.startswith('kafkalite.api.')])\n"
        "assert len(found) > 1\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout == b"[]\n"
