"""Write the notice of an image: each Python package that it passes on, with its licence and the texts that come with it.

The packages are those that are installed beside this Python. Debian's own are in /usr/share/doc/*/copyright of the image.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

TEXTS = ("LICEN", "COPYING", "NOTICE", "AUTHORS")
"""Beginnings of the names of files that a licence asks to pass on."""


def licence_of(package: Distribution) -> str:
    """Return the licence that a package's metadata state: as an expression, by classifiers, or in the package's own words."""
    metadata = package.metadata
    named = (one.rpartition(" :: ")[2] for one in metadata.get_all("Classifier", []) if one.startswith("License ::"))
    classifiers = [one for one in named if one != "OSI Approved"]
    own = (metadata.get("License") or "").strip().partition("\n")[0]
    return metadata.get("License-Expression") or ", ".join(classifiers) or own or "see its texts"


def texts_of(package: Distribution) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of the files with licences and notices."""
    for file in package.files or ():
        path = Path(file.locate())
        if path.name.upper().startswith(TEXTS) and path.suffix not in {".py", ".pyc"} and path.is_file():
            yield str(file), path.read_text(encoding="utf-8", errors="replace")


def main() -> None:
    """Print the notice."""
    found = {one.metadata["Name"].lower(): one for one in distributions()}
    packages = [package for _, package in sorted(found.items())]
    sys.stdout.write("This image passes on the following Python packages under their own licences.\n\n")
    sys.stdout.writelines(f"{one.metadata['Name']} {one.version}: {licence_of(one)}\n" for one in packages)
    for package in packages:
        for name, text in texts_of(package):
            sys.stdout.write(f"\n{'=' * 100}\n{package.metadata['Name']} {package.version}: {name}\n\n{text.rstrip()}\n")


if __name__ == "__main__":
    main()
