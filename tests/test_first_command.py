"""The packages that the README's first command installs are enough: a process works with all other packages hidden.

The required packages are imported before the others are hidden. When `tests/run` makes a new environment, it imports
all modules with the required packages alone.
"""

from __future__ import annotations

from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.utils import canonicalize_name

from tests import processes
from tests.measure.licences import packages, pins
from tests.model.weights.sources import write_gguf

# The packages that every new environment has.
PREINSTALLED = {"pip", "setuptools"}
# A module that is None in sys.modules cannot be imported.
HIDE = "import sys; sys.modules.update(dict.fromkeys({hidden!r}))\n"
USE = """
import pkgutil
from importlib import import_module
from pathlib import Path
import specrace
from specrace.model.weights.gguf_reader import convert
from specrace.model.loading import load_target

for module in pkgutil.walk_packages(specrace.__path__, "specrace."):
    if not module.name.endswith("__main__"):
        import_module(module.name)
folder = Path(sys.argv[1])
convert(folder)
load_target(folder).prefill([3, 4, 5])
from specrace.cli.main import main
sys.exit(main(["race", "Why does bread rise?", "--max-new-tokens", "3"]))
"""


def modules_to_hide() -> set[str]:
    """The modules of installed packages that `requirements.txt` does not bring."""
    needed = PREINSTALLED | {package.name for package in packages(pins())}
    return {
        module
        for module, owners in packages_distributions().items()
        if not needed & {canonicalize_name(owner) for owner in owners}
    }


def test_a_model_is_converted_and_a_race_runs_with_the_required_packages(tmp_path: Path) -> None:
    hidden = modules_to_hide()
    assert {"pytest", "playwright"} <= hidden and not {"torch", "gradio"} & hidden
    write_gguf(tmp_path / "weights.gguf")
    script = HIDE.format(hidden=hidden) + USE
    done = processes.run(["-c", script, tmp_path])
    assert done.returncode == 0 and "identical to vanilla" in " ".join(done.stdout.split()), done.stderr
