"""Markdown: the page text is the source text, so that every quote is one of the file's own.

markdown-it says where the headings are (not in code fences, lists or quotes); front matter (YAML between
``---`` lines) is text like the rest, but no heading.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from pipeline.ingest.extract.text import one_page, read_text
from pipeline.models import ExtractedShard, Heading

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*$\n?", re.MULTILINE | re.DOTALL)
_FRONT_TITLE = re.compile(r"^title:[ \t]*(?P<quote>[\"']?)(?P<title>\S[^\n]*?)(?P=quote)[ \t]*$", re.MULTILINE)
_FIRST_TITLE = re.compile(r"\A(?:\s|<!--(?:(?!-->).)*-->)*#[ \t]+([^\n]+?)[ \t#]*$", re.MULTILINE | re.DOTALL)


def extract(path: Path) -> ExtractedShard:
    text = read_text(path)
    return one_page(text, find_headings(text))


def find_title(text: str) -> str | None:
    """The front matter's title, else a level 1 heading that opens the text."""
    front = _FRONT_MATTER.match(text)
    if front and (found := _FRONT_TITLE.search(front[1])):
        return found["title"]
    opening = _FIRST_TITLE.search(text[front.end() if front else 0 :])
    return plain(opening[1]) or None if opening else None


def find_headings(text: str) -> tuple[Heading, ...]:
    """ATX and setext headings with the offset of their source line."""
    front = _FRONT_MATTER.match(text)
    start = front.end() if front else 0
    body = text[start:]
    offsets = [0, *accumulate(len(line) + 1 for line in body.split("\n"))]
    tokens = _block_parser().parse(body)
    return tuple(
        Heading(start + offsets[token.map[0]], int(token.tag[1]), title)
        for token, inline in pairwise(tokens)
        if token.type == "heading_open" and token.level == 0 and token.map and (title := plain(inline.content))
    )


def plain(source: str) -> str:
    """The visible words of one line of inline Markdown."""
    return " ".join("".join(map(_visible, _inline_parser().parseInline(source)[0].children or ())).split())


def _visible(token: Token) -> str:
    return " " if token.type in {"softbreak", "hardbreak"} else token.content if token.type != "html_inline" else ""


@cache
def _block_parser() -> MarkdownIt:
    """Without the inline rules, which would cost most of the time and which only headings need."""
    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


@cache
def _inline_parser() -> MarkdownIt:
    return MarkdownIt("commonmark")
