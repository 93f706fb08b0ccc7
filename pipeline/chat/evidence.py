"""Whether quotes can support a claim: its numbers, dates, negation and names against theirs.

A real quote can still be the wrong one. These checks find what can be decided without a model, and are
conservative: a claim may leave out anything that its quotes say, round a figure, or spell out the scale
that a table gives in its heading. What it may not do is say another number or the opposite.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pipeline.chat.quantities import Quantity, dates, quantities
from pipeline.chat.terms import content_terms


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a claim says and its quotes do not. `contradicts` is False for what is only unproven."""

    kind: str
    reason: str
    contradicts: bool


_NEGATION = re.compile(
    r"\b(?:not(?! only\b)|no(?! (?:later|less|more|fewer) than\b)(?![.,])|never|none|neither|nor|without|cannot"
    r"|fail(?:s|ed)? to|lacks?|unable to)\b|n['\u2019]t\b"
    r"|没有|并未|并非|不是|不能|不会|未能|尚未|从未|未(?!来)|非(?![常洲])|不(?![同断仅过])|无(?!论)|没",
    re.IGNORECASE,
)
_CLAUSE_END = re.compile(
    r"[,;:!?()。\uff0c\uff1b\uff1a\uff01\uff1f、]|\.(?=\s|$)|\b(?:but|although|while|whereas)\b|但|而", re.IGNORECASE
)
_CLAUSE_CHARS = 160
_CHINESE_NUMBER = re.compile("[〇零一二三四五六七八九十百千]{2,}|百分之")
_LIST_NUMBER = re.compile(r"^\s*\(?\d{1,3}[.)]\s+")
_ENOUGH = 0.5
_NAME = re.compile(r"(?<![.!?:] )(?<!^)(?<!\n)\b[A-Z][\w&'\u2019-]+(?: [A-Z][\w&'\u2019-]+)*")
_ROSE = re.compile(r"\b(?:increas|grew|grow|rose|rise|rising)\w*|增长|增加|上升|提高", re.IGNORECASE)
_FELL = re.compile(r"\b(?:decreas|declin|fell|fall|dropp?|shr[aiu]nk|reduc)\w*|下降|减少|降低", re.IGNORECASE)
_NEGATIVE = re.compile(rf"{_FELL.pattern}|\b(?:loss|lost|losses|negative|lower|down|deficit)\b|亏损", re.IGNORECASE)


def check(claim: str, quotes: Sequence[str]) -> tuple[Finding, ...]:
    """What keeps the quotes together from supporting the claim; empty when nothing does."""
    quoted = "\n".join(quotes)
    claim = _LIST_NUMBER.sub("", claim)
    return (
        *_number_findings(claim, quoted),
        *_date_findings(claim, quoted),
        *_direction_findings(claim, quoted),
        *_negation_findings(claim, quoted),
        *_name_findings(claim, quoted),
    )


def _number_findings(claim: str, quoted: str) -> Iterable[Finding]:
    theirs = quantities(quoted)
    is_negative = _NEGATIVE.search(claim) is not None
    for ours in quantities(claim):
        if any(_supports(ours, their, is_negative, quoted) for their in theirs):
            continue
        if _can_not_tell(ours, theirs, quoted):
            continue
        nearest = next((their for their in theirs if their.unit == ours.unit), theirs[0] if theirs else None)
        says = f"the quote says {nearest.text}" if nearest else "the quote has no number"
        yield Finding("number", f"the claim says {ours.text}, {says}", contradicts=True)


def _can_not_tell(ours: Quantity, theirs: Sequence[Quantity], quoted: str) -> bool:
    """Counts in words ("two reasons") need not be in the quote, but must agree on the same noun.

    Numbers in Chinese characters are not read, so a quote with them refutes no number.
    """
    if ours.is_count_word:
        return not content_terms(ours.noun) or not any(their.noun == ours.noun for their in theirs)
    return _CHINESE_NUMBER.search(quoted) is not None


def _supports(ours: Quantity, their: Quantity, claim_is_negative: bool, quoted: str) -> bool:
    return ours.agrees_with(their) and _same_sign(ours, their, claim_is_negative, quoted)


def _same_sign(ours: Quantity, their: Quantity, claim_is_negative: bool, quoted: str) -> bool:
    """Words carry signs too: "fell by 5 %" and "-5 %" agree. Brackets in accounts do not settle a sign."""
    if their.sign in {ours.sign, "()"}:
        return True
    if ours.sign in ("-", "()"):
        return _NEGATIVE.search(quoted) is not None
    return their.sign != "-" or claim_is_negative


def _date_findings(claim: str, quoted: str) -> Iterable[Finding]:
    """A date contradicts only when the quote has dates of the same kind and none of them is the claim's."""
    ours, theirs = dates(claim), dates(quoted)
    for kind in ("year", "month", "day"):
        said, shown = ours.of(kind), theirs.of(kind)
        if said and shown and not said & shown:
            reason = f"the claim says {kind} {_listed(said)}, the quote says {_listed(shown)}"
            yield Finding("date", reason, contradicts=True)


def _direction_findings(claim: str, quoted: str) -> Iterable[Finding]:
    if not quantities(claim):
        return
    for said, opposite in ((_ROSE, _FELL), (_FELL, _ROSE)):
        ours, shown = said.search(claim), opposite.search(quoted)
        if ours and shown and not opposite.search(claim) and not said.search(quoted):
            reason = f'the claim says "{ours.group()}", the quote says "{shown.group()}"'
            yield Finding("direction", reason, contradicts=True)


def _negation_findings(claim: str, quoted: str) -> Iterable[Finding]:
    """A negation counts only when the other side says the denied thing and denies nothing."""
    if _denies(claim, quoted):
        yield Finding("negation", "the claim negates what the quote says without negation", contradicts=True)
    elif _denies(quoted, claim):
        yield Finding("negation", "the quote negates what the claim says without negation", contradicts=True)


def _denies(one: str, other: str) -> bool:
    """Half of a negation's scope is enough: "did not meet the target" is found in "met the target"."""
    if _NEGATION.search(other):
        return False
    said = frozenset(content_terms(other))
    return any(_share(scope, said) >= _ENOUGH and _share(clause, said) >= _ENOUGH for scope, clause in _denied(one))


def _denied(text: str) -> Iterator[tuple[frozenset[str], frozenset[str]]]:
    """For each negation, the terms that it denies (up to the end of its clause) and those of the whole clause."""
    for cue in _NEGATION.finditer(text):
        before = _CLAUSE_END.split(text[max(0, cue.start() - _CLAUSE_CHARS) : cue.start()])[-1]
        after = _CLAUSE_END.split(text[cue.end() : cue.end() + _CLAUSE_CHARS])[0]
        scope = frozenset(content_terms(after))
        if scope:
            yield scope, scope | frozenset(content_terms(before))


def _share(terms: frozenset[str], said: frozenset[str]) -> float:
    return len(terms & said) / len(terms)


def _name_findings(claim: str, quoted: str) -> Iterable[Finding]:
    """Names that only the claim has. A quote may say "the company", so this proves nothing wrong."""
    missing = sorted({name for name in _NAME.findall(claim) if name not in quoted})
    if missing:
        yield Finding("name", f"the quote does not name {', '.join(missing)}", contradicts=False)


def _listed(values: Iterable[str]) -> str:
    return ", ".join(sorted(values))
