"""`python -m tests.measure.licences`: prints the licence of every package that the app needs, as installed here.

Exits with 1 if a licence is unknown, or demands more than its notice and the source of changed files. Needs no network.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
# Names of licences that permit redistribution.
PERMISSIVE = (
    "Apache",
    "BSD",
    "ISC",
    "MIT-CMU",
    "MIT",
    "MPL",
    "PSF",
    "Python Software Foundation",
    "HPND",
    "Unlicense",
    "0BSD",
)
REFUSED = re.compile(r"\bA?GPL|GNU (Affero )?General Public|SSPL|non-?commercial|proprietary", re.IGNORECASE)
LESSER = re.compile(r"LGPL|GNU Lesser", re.IGNORECASE)


@dataclass(frozen=True)
class Package:
    """An installed package; `licence` is "" if its metadata has none."""

    name: str
    version: str
    licence: str

    @property
    def is_permissive(self) -> bool:
        """Whether anyone may use the package and pass it on with its notice."""
        # A package under the LGPL and another licence is judged by the other one.
        without_lesser = LESSER.sub("", self.licence)
        return any(name in without_lesser for name in PERMISSIVE) and not REFUSED.search(without_lesser)


def pins(file: Path = ROOT / "requirements.txt") -> list[Requirement]:
    """The requirements in a file, without hashes and options."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return [Requirement(line.removesuffix("\\")) for line in lines if re.match("[a-z]", line)]


def packages(needed: Iterable[Requirement]) -> Iterator[Package]:
    """These packages and all that they need, sorted by name. Raises PackageNotFoundError if a package is missing."""
    waiting, listed = list(needed), dict[str, Package]()
    while waiting:
        requirement = waiting.pop()
        name, extras = canonicalize_name(requirement.name), requirement.extras or {""}
        if name in listed or not applies(requirement, {""}):
            continue
        about = metadata.distribution(name)
        listed[name] = Package(name, about.version, licence_of(about))
        waiting += [dependency for dependency in map(Requirement, about.requires or ()) if applies(dependency, extras)]
    yield from sorted(listed.values(), key=lambda package: package.name)


def applies(requirement: Requirement, extras: Iterable[str]) -> bool:
    """Whether a requirement applies on this machine, with one of the extras."""
    return requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras)


def licence_of(about: metadata.Distribution) -> str:
    """The licence in a package's metadata: the expression, else the classifiers, else the first line of the text."""
    head = about.metadata
    lines = [line for line in head.get_all("Classifier", ()) if line.startswith("License ::")]
    classifiers = ", ".join(line.rpartition(" :: ")[2] for line in lines)
    text = (head.get("License") or "").strip()
    return head.get("License-Expression") or classifiers or text.partition("\n")[0]


def main() -> int:
    """Print all packages; return 1 if a licence is not permissive."""
    listed = list(packages(pins()))
    for package in listed:
        remark = "" if package.is_permissive else "  (not permissive)"
        print(f"{package.name:28}{package.version:16}{package.licence or 'unknown'}{remark}")
    return int(not all(package.is_permissive for package in listed))


if __name__ == "__main__":
    sys.exit(main())
