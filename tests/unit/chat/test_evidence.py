from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.chat.evidence import check
from pipeline.chat.quantities import quantities
from tests.unit.chat.texts import TEXTS

SUPPORTED = [
    ("1. Revenue grew 12 %.", "Revenue grew 12%"),
    ("Revenue grew 25 %.", "Revenue grew twenty-five percent"),
    ("收入增长12%", "收入增长了百分之十二"),
    ("It is one of the largest.", "Two of the four largest are ours."),
    ("In the season 2019-20 it won 5 games.", "It won 5 games."),
    ("Revenue grew 12 %.", "Revenue grew 12% in 2021"),
    ("Revenue grew about 12 %.", "Revenue grew 12.3%"),
    ("Capex was $1,577 million in 2018.", "Purchases of property, plant and equipment (PP&E) (1,577) (1,373) (1,420)"),
    ("Capex was $1.6 billion.", "Purchases of PP&E (1,577)"),
    ("Sales fell 5%.", "Sales change: -5 %"),
    ("Gross margin was 38.6 %.", "Gross margin 38.6 39.1"),
    ("It has three segments.", "The company has 3 segments"),
    ("There were two main reasons.", "Growth of 45 stores was caused by weather"),
    ("收入增长12%", "2021年收入增长12%\uff0c利润下降"),
    ("The deal closed on March 31, 2021.", "closed on 2021-03-31"),
    ("The fee is 3.5 percent", "fee of 3.5%"),
    ("3M met the target.", "3M met the target and did not change its dividend."),
    ("According to Note 5, sales were 10.", "sales were 10"),
    ("FY2022 sales were 4", "In fiscal 2022, sales were 4"),
    ("Net loss was $5 million", "Net income (loss) $ (5)"),
    ("COVID-19 hurt sales", "COVID-19 hurt sales"),
    ("The plan is not capital intensive, as capex was 5% of sales.", "capex 5% of sales"),
    ("There are 5 offices.", "- 5 offices"),
    ("Die Kosten betrugen 1,5 Prozent", "1,5 Prozent der Kosten"),
]
CONTRADICTED = [
    ("Revenue grew 25 %.", "Revenue grew thirty-five percent", "number"),
    ("1. Revenue grew 12 %.", "1. Revenue grew 13%", "number"),
    ("Revenue grew 12 %.", "Revenue grew 21% in 2021", "number"),
    ("Revenue grew 12%", "Revenue fell 12%", "direction"),
    ("Revenue was 5 million.", "Revenue was 5 billion", "number"),
    ("Revenue was 1,577 thousand", "Revenue was 1,577 million", "number"),
    ("Revenue was $5 million", "Revenue was €5 million", "number"),
    ("Change was 5 %", "Change was -5 %", "number"),
    ("Change was -5 %", "Change was 5 %", "number"),
    ("Revenue was 12", "Revenue was 12.6", "number"),
    ("sales were 1,234", "sales were 1,243", "number"),
    ("sales were 15 %", "sales were high", "number"),
    ("2.3 percentage points", "2.3%", "number"),
    ("It has three segments.", "It has four segments.", "number"),
    ("It took 5 days", "It took 5 years", "number"),
    ("In 2021 sales were 5", "In 2020 sales were 5", "date"),
    ("The deal closed on March 31, 2021", "The deal closed on June 30, 2021", "date"),
    ("公司于2021年成立", "公司于2020年成立", "date"),
    ("The company met its target.", "The company did not meet its target.", "negation"),
    ("The product is not approved.", "The product is approved.", "negation"),
    ("公司支付股息", "公司没有支付股息", "negation"),
    ("利润下降了12%", "利润增长了12%", "direction"),
]


@pytest.mark.parametrize(("claim", "quote"), SUPPORTED)
def test_a_claim_may_omit_round_or_spell_out(claim, quote):
    assert [finding.reason for finding in check(claim, [quote]) if finding.contradicts] == []


@pytest.mark.parametrize(("claim", "quote", "kind"), CONTRADICTED)
def test_a_claim_may_not_say_something_else(claim, quote, kind):
    assert kind in {finding.kind for finding in check(claim, [quote]) if finding.contradicts}


def test_the_reason_names_both_sides():
    (finding,) = check("Revenue grew 12 %.", ["Revenue grew 21 % in 2021"])
    assert finding.reason == "the claim says 12 %, the quote says 21 %"


def test_several_quotes_support_a_claim_together():
    assert check("Sales were 5 and costs were 3.", ["Sales were 5.", "Costs were 3."]) == ()


def test_a_missing_name_is_reported_but_contradicts_nothing():
    (finding,) = check("They sold Beats to Apple.", ["they sold the company"])
    assert finding.kind == "name"
    assert not finding.contradicts


@given(TEXTS)
def test_a_text_never_contradicts_itself(text):
    assert [finding for finding in check(text, [text]) if finding.contradicts] == []


PIECES = st.sampled_from(
    [
        *"0123456789.,-()$%½ \n\t\u00a0\u3000",
        "million",
        "M\u0130LL\u0130ON",
        "m\u0131ll\u0131on",
        "billion\u017f",
        "s\u0131x",
        "\u212a",
    ]
)


@given(st.lists(PIECES, max_size=12).map("".join))
@example("1,577\nmillion")
@example("1 - million")
@example("3 billion\u017f and s\u0130x")
def test_numbers_in_any_writing_are_read_without_a_fault(text):
    assert check(text, [text]) is not None


def test_a_scale_on_the_next_line_counts():
    assert [each.exponent for each in quantities("1,577\nmillion, 2-billion")] == [6, 9]
