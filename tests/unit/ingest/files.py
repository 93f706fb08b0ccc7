"""Small files made on the spot, and where the measurement data is."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from reportlab.pdfgen import canvas

SHARED = Path(__file__).resolve().parents[3].parent / "shared" / "data"
ZOO = SHARED / "zoo"
FINANCEBENCH = SHARED / "pdfqa" / "financebench"


def write(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def drawn_pdf(
    pages: list[list[str]], *, outline: dict[int, list[tuple[int, str]]] | None = None, title: str = ""
) -> bytes:
    """A PDF with the given lines on its pages; outline entries are (level from 0, title) by page index."""
    buffer = io.BytesIO()
    pdf = canvas.Canvas(buffer)
    if title:
        pdf.setTitle(title)
    for index, lines in enumerate(pages):
        for level, entry in (outline or {}).get(index, []):
            pdf.bookmarkPage(f"{index}-{entry}")
            pdf.addOutlineEntry(entry, f"{index}-{entry}", level)
        text = pdf.beginText(72, 760)
        for line in lines:
            text.textLine(line)
        pdf.drawText(text)
        pdf.showPage()
    pdf.save()
    return buffer.getvalue()


def raw_pdf(content: bytes, *, cmap: bytes = b"", page: bytes = b"/MediaBox [0 0 300 300]", more: bytes = b"") -> bytes:
    """A one-page PDF around a content stream: Helvetica as /F1, its ToUnicode map, entries of the page dictionary."""
    font = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica %s>>" % (b"/ToUnicode 6 0 R " if cmap else b"")
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R %s>>" % more,
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> %s >>" % page,
        _stream(content),
        font,
        _stream(_CMAP % cmap),
    ]
    return pdf_file(objects)


def pdf_file(objects: list[bytes]) -> bytes:
    """Objects numbered from 1, the first is the catalog."""
    data = b"%PDF-1.7\n"
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    head = b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    return (
        data
        + head
        + table
        + b"trailer << /Root 1 0 R /Size %d >>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, len(data))
    )


def _stream(content: bytes) -> bytes:
    return b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content)


_CMAP = (
    b"/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /X def /CMapType 2 def\n"
    b"1 begincodespacerange <00> <ff> endcodespacerange\n%s endcmap end end"
)


def package(parts: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return buffer.getvalue()
