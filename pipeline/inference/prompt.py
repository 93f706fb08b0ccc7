"""The messages that ask a model for an answer with citations.

It lies with the generators, below chat, because they build their own requests. What never changes comes
first, so that a provider can reuse its work on the common beginning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from pipeline.inference.ports import GenerationRequest
from pipeline.models import ChatMessage, PageSpan, Source
from pipeline.prompts import load_prompt

Count = Callable[[str], int]

_LENGTHS = {
    "short": "Answer in one or two sentences.",
    "medium": "",
    "long": "Answer in detail, in several paragraphs, with all that the sources say about the question.",
}
#: What could close our delimiters, open one, or look like a marker; width variants and blanks included.
_IMITATION = re.compile(
    r"[<\uff1c\ufe64\u2039](?=\s*[/\uff0f]?\s*(?:sources?|pages?|question)\b)|[\[\uff3b](?=\s*\d{1,3}\s*[\],])",
    re.IGNORECASE,
)
_AMPERSAND = re.compile(r"&(?=#?[0-9a-zA-Z])")
_ATTRIBUTE = re.compile(r"[<>\"&\r\n\t]")


def answer_messages(request: GenerationRequest, max_source_tokens: int, count: Count) -> list[ChatMessage]:
    """System rules, the history, and the question with its sources.

    Sources beyond `max_source_tokens` are left out whole, from the end; the first one always stays.
    """
    shown = _within(request.sources, max_source_tokens, count)
    blocks = "\n".join(source_block(source) for source in shown) or "(No sources were found.)"
    question = f"<sources>\n{blocks}\n</sources>\n\n<question>\n{escape(request.question)}\n</question>"
    return [
        ChatMessage("system", _system(request)),
        *request.history,
        ChatMessage("user", question),
    ]


def source_block(source: Source) -> str:
    """A source with its pages tagged; its text can neither close the tags nor imitate them."""
    section = " > ".join(source.section_path)
    pages = "\n".join(_page_block(source, page) for page in source.pages)
    head = f'<source index="{source.index}" title="{_attribute(source.title)}" section="{_attribute(section)}">'
    return f"{head}\n{pages}\n</source>"


def escape(text: str) -> str:
    """Text as data: `<source` becomes `&lt;source` and `[1]` becomes `&#91;1]`. chat/quotes.py undoes it in quotes.

    A `&` that could begin an entity becomes `&amp;`, so that undoing gives exactly the text back.
    """
    plain = _AMPERSAND.sub("&amp;", text)
    return _IMITATION.sub(lambda match: "&#91;" if match.group() in "[\uff3b" else "&lt;", plain)


def _system(request: GenerationRequest) -> str:
    parts = (
        load_prompt("answer").text,
        _LENGTHS[request.params.target_output_length],
        request.params.system_message,
    )
    return "\n\n".join(part for part in parts if part)


def _page_block(source: Source, page: PageSpan) -> str:
    text = source.text[max(0, page.start - source.start) : page.end - source.start]
    return f'<page number="{page.number}">\n{escape(text).strip()}\n</page>'


def _attribute(text: str) -> str:
    return escape(_ATTRIBUTE.sub(" ", text)).strip()


def _within(sources: Sequence[Source], max_tokens: int, count: Count) -> list[Source]:
    shown: list[Source] = []
    left = max_tokens
    for source in sources:
        left -= count(source_block(source))
        if left < 0 and shown:
            break
        shown.append(source)
    return shown
