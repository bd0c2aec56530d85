"""What the README's first command installs is enough: a new process works with the tests' own packages hidden."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.utils import canonicalize_name

from tests.measure.licences import packages, pins
from tests.model.sources import write_gguf

ROOT = Path(__file__).resolve().parents[1]
# Every new environment has them.
ALWAYS = {"pip", "setuptools"}
# A module that is None in sys.modules cannot be imported.
HIDE = "import sys; sys.modules.update(dict.fromkeys({hidden!r}))\n"
USE = """
import pkgutil
from importlib import import_module
from pathlib import Path
import specrace
from specrace.model.gguf_weights import convert
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


def hidden() -> set[str]:
    """The modules of installed packages that `requirements.txt` does not bring."""
    needed = ALWAYS | {package.name for package in packages(pins())}
    return {
        module
        for module, owners in packages_distributions().items()
        if not needed & {canonicalize_name(owner) for owner in owners}
    }


def test_a_model_is_converted_and_raced(tmp_path: Path) -> None:
    absent = hidden()
    assert {"pytest", "playwright"} <= absent and not {"torch", "gradio"} & absent
    write_gguf(tmp_path / "weights.gguf")
    script = HIDE.format(hidden=absent) + USE
    done = subprocess.run([sys.executable, "-c", script, tmp_path], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "identical to vanilla" in " ".join(done.stdout.split()), done.stderr
