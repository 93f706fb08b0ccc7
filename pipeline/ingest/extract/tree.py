"""Trees of libxml2, parsed and walked so that no limit is passed in silence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lxml import etree

#: lxml has no type information.
Element = Any


def parse(data: bytes, parser: etree.XMLParser | etree.HTMLParser) -> Element | None:
    """The root element, None when there is nothing but white space.

    Raises etree.LxmlError for damage and for a limit (which a recovering parser would only log, and then answer half a
    tree), MemoryError when libxml2 ran out of memory.
    """
    try:
        root = etree.fromstring(data, parser)
    except etree.XMLSyntaxError as error:
        if error.code == etree.ErrorTypes.ERR_NO_MEMORY:
            raise MemoryError from error
        raise
    for entry in parser.error_log:
        if entry.type == etree.ErrorTypes.ERR_NO_MEMORY:
            raise MemoryError
        if entry.type_name == "ERR_RESOURCE_LIMIT":
            raise etree.LxmlError(entry.message.strip())
    return root


def walk(root: Element, enter: Callable[[Element], bool], leave: Callable[[Element], None]) -> None:
    """Depth first without recursion, as trees may be deeper than Python's stack. `enter` says whether to go in.

    An element that is not gone into is left at once.
    """
    stack = [(root, True)]
    while stack:
        element, is_new = stack.pop()
        if is_new and enter(element):
            stack.append((element, False))
            stack.extend((child, True) for child in reversed(element))
        else:
            leave(element)
