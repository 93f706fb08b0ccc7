"""The context that is put before a chunk when it is embedded and ranked."""

from __future__ import annotations

from collections.abc import Sequence

_MAX_TITLE_CHARACTERS = 120
_MAX_PATH_CHARACTERS = 200


def header(title: str, section_path: Sequence[str]) -> str:
    r"""The document's title and, on a second line, the section's titles from the top: ``A > B > C``.

    A top section named like the document isn't repeated. Of a long path the lowest titles stay, so that the header
    leaves an embedder room for the text; what is embedded is ``header + "\\n\\n" + text``.
    """
    path = list(section_path[1:] if section_path and section_path[0] == title else section_path)
    while len(path) > 1 and len(" > ".join(path)) > _MAX_PATH_CHARACTERS:
        path.pop(0)
    lines = (title[:_MAX_TITLE_CHARACTERS].strip(), " > ".join(path)[:_MAX_PATH_CHARACTERS].strip())
    return "\n".join(filter(None, lines))
