"""The terms of a text that carry its meaning."""

from __future__ import annotations

import re

from pipeline.analysis import analyse

#: Function words and words that only ask, in their analysed form.
_EMPTY = re.compile(
    r"an?|the|this|that|these|those|it|its|he|him|his|she|her|they|them|their|we|us|our|you|your|i|me|my|who|whom"
    r"|whose|which|what|when|where|whi|why|how|and|or|but|if|then|than|so|as|of|in|on|at|by|for|from|to|into|with"
    r"|about|between|dure|during|is|are|am|was|were|be|been|being|do|doe|does|did|done|have|has|had|can|could|will"
    r"|would|shall|should|may|might|must|not|no|ani|any|some|all|each|there|here|also|onli|only|veri|very|more|most"
    r"|much|mani|many|other|such|both|up|out|over|under|s|t|re|name|pleas|please|tell|give|kind|type|did|s"
    r"|什么|哪些|哪个|哪里|多少|怎么|怎样|如何|为何|为什|是什|么时|时候|几个|是谁|的|了|吗|呢|是|在|有|和|与"
)


def content_terms(text: str) -> list[str]:
    """Analysed terms without function words, repeated as often as they occur."""
    return [term for term in analyse(text) if not _EMPTY.fullmatch(term)]
