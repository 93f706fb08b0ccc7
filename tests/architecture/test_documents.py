"""The documents are true: ARCHITECTURE names every file, the error tree every class, the table every policy."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from pipeline import errors

REPOSITORY = Path(__file__).parents[2]
PACKAGES = ("pipeline", "workers", "api_gateway")


def test_the_architecture_has_a_line_for_each_file() -> None:
    text = (REPOSITORY / "ARCHITECTURE.md").read_text()
    named = set(re.findall(r"^\| `([a-z_/0-9]+\.(?:py|lua|md))` \|", text, flags=re.MULTILINE))
    there = {
        str(path.relative_to(REPOSITORY))
        for package in PACKAGES
        for pattern in ("*.py", "*.lua", "*.md")
        for path in (REPOSITORY / package).rglob(pattern)
        if not (path.name == "__init__.py" and not path.read_text().strip())
    }
    assert sorted(there - named) == [], "files without a line in ARCHITECTURE.md"
    assert sorted(named - there) == [], "lines in ARCHITECTURE.md without a file"


def test_the_error_tree_names_every_error() -> None:
    classes = {name for name, value in vars(errors).items() if inspect.isclass(value)}
    drawn = set(re.findall(r"\b(\w+Error)\b", errors.__doc__ or ""))
    assert drawn == classes


def test_links_between_documents_lead_somewhere() -> None:
    for document in [*REPOSITORY.glob("*.md"), *(REPOSITORY / "deploy" / "adr").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
