"""Sources and hostile texts for the chat tests."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

from pipeline.models import MediaType, PageSpan, Source

PIECES = st.sampled_from(
    [
        *("revenue", "Revenue", "inter-\nnational", "long-term", "ofﬁce", "cafe\u0301", "café", "soft\u00adhyphen"),
        *(
            "12 %",
            "1,577",
            "(1,577)",
            "-5",
            "10²",
            "6½",
            "2019-2020",
            "“quoted”",
            "it\u2019s",
            "don't",
            "—",
            "\u2013",
            "...",
        ),
        *(
            " ",
            "  ",
            "\n",
            "\r\n",
            "\t",
            "\u00a0",
            "\u200b",
            "。",
            "收入增长",
            "中\n国",
            "한국",
            "ｶﾞ",
            "\uff21\uff22\uff23",
            "\u03b1",
            "[1]",
        ),
        *("-", "- ", "$", ".", ", ", "(", ")", "|", "\x02", "\ufffe", "\ud7a3\u11a8", "\u0301", "&lt;", "<", "🙂"),
    ]
)
TEXTS = st.lists(PIECES | st.text(max_size=6), max_size=30).map("".join)


def source(text: str, *, index: int = 1, start: int = 100, page_ends: tuple[int, ...] = ()) -> Source:
    """A source whose pages end at these offsets into its text; the last page ends behind it."""
    cuts = [0, *page_ends, len(text)]
    pages = tuple(
        PageSpan(number, start + left, start + right) for number, (left, right) in enumerate(pairwise(cuts), start=3)
    )
    return Source(
        index=index,
        kb_id="kb",
        document_id=f"doc-{index}",
        revision=2,
        key=f"file-{index}.pdf",
        title="A report",
        media_type=MediaType.PDF,
        section_path=("Results",),
        start=start,
        end=start + len(text),
        text=text,
        pages=pages,
        score=1.0,
    )
