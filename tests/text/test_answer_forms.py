"""Which prompts ask for a form, which output is that form and nothing else, and what is said of an answer without it."""

from __future__ import annotations

import pytest

from pinfold.text.answer_forms import LACKS, asked_form, stdout_of, wants_more

pytestmark = pytest.mark.unit
FARE = (
    "Calculate the mean fare paid by the passengers, rounded to two decimal places.\n"
    'Format: @mean_fare[mean_fare_value] where "mean_fare_value" is a floating-point number rounded to two decimal places.'
)
TWO = 'Test for normality.\nAnswer as:\n@p_value[p]\n@is_normal[is_normal]\nwhere "p" is a number and "is_normal" is a string.'
KEYS = 'How many rows are there, and what is their mean? Answer as JSON with the keys "rows" and "mean".'


@pytest.mark.parametrize(
    ("prompt", "output", "answer"),
    [
        (FARE, "@mean_fare[34.65]", "@mean_fare[34.65]"),
        (FARE, "891 rows\n\n@mean_fare[34.65]\n", "@mean_fare[34.65]"),
        (TWO, "@p_value[0.031]\n@is_normal[no]", "@p_value[0.031]\n@is_normal[no]"),
        (TWO, "@is_normal[no], @p_value[3.1e-05]", "@is_normal[no], @p_value[3.1e-05]"),
        ("Name the outliers. Format: @ids[list]", "@ids[[3, 5, 8]]", "@ids[[3, 5, 8]]"),
        ("What is related? Format: @r[r]\\n@kind[kind]", "@r[0.1]\n@kind[none]", "@r[0.1]\n@kind[none]"),
        (KEYS, '{"rows": 5, "mean": 2.5}', '{"rows": 5, "mean": 2.5}'),
        (KEYS, 'read\n{\n "rows": 5,\n "mean": 0\n}', '{\n "rows": 5,\n "mean": 0\n}'),
        ("Return a JSON object with keys rows, mean and top.", '{"top": 1, "rows": 5, "mean": 2}', None),
        ('Reply in exactly this form: {"shop": "A", "total": 1.5}', '{"shop": "B", "total": 7}', None),
    ],
)
def test_what_was_printed_in_the_asked_form_is_the_answer_word_for_word(
    prompt: str, output: str, answer: str | None
) -> None:
    form = asked_form(prompt)
    assert form is not None
    assert form.find_printed(output) == (answer or output)
    assert form.fault(answer or output) == ""


@pytest.mark.parametrize(
    ("prompt", "output"),
    [
        (FARE, "The mean fare is @mean_fare[34.65]"),
        (FARE, "@mean_fare[34.65]\nand that is all"),
        (FARE, "@mean_fare[34.6512]"),
        (FARE, "@mean_fare[mean_fare_value]"),
        (FARE, "@mean_fare[$34.65]"),
        (FARE, "@mean_fare[]"),
        (FARE, "@mean_fare[nan]"),
        (FARE, "@mean_fare[1.00] @mean_fare[2.00]"),
        (FARE, "@mean_fare[1.00]\n@median[2.00]"),
        (TWO, "@p_value[0.031]"),
        (TWO, "@p_value[0.03]\n@is_normal[no]\n@p_value[0.04]\n@is_normal[no]"),
        (TWO, "@p_value[0.031]\nand\n@is_normal[no]"),
        ("Name the outliers. Format: @ids[list]", "@ids[[np.int64(3)]]"),
        (KEYS, '{"rows": 5}'),
        (KEYS, '{"rows": 5, "mean": 2.5, "more": 1}'),
        (KEYS, '{"rows": 5, "mean": NaN}'),
        (KEYS, '{"rows": 5, "mean": null}'),
        (KEYS, "{'rows': 5, 'mean': 2.5}"),
        (KEYS, '{"rows": 5, "mean": 2.5}\ndone'),
        (KEYS, 'Result: {"rows": 5, "mean": 2.5}'),
        ("Which shop is best? Answer in one line.", "Index(['shop', 'price'], dtype='str')"),
        ("Which shop is best? Answer in one line.", "42"),
    ],
)
def test_what_is_less_or_more_than_the_form_is_not_taken(prompt: str, output: str) -> None:
    form = asked_form(prompt)
    assert form is not None
    assert form.find_printed(output) is None


@pytest.mark.parametrize(
    "prompt",
    [
        "What is the mean fare?",
        "Why does @media[print] not work?",
        "Who is user@host[0] in the report?",
        "Answer as @linear[r] or @nonlinear[r].",
        "Format: @count[n]. If there are none, output @status[text].",
        "The file holds JSON with the keys a and b. How many?",
        "Print the number of JSON records with the keys a and b.",
        "Return the JSON keys that are missing",
        "Print a JSON object with the keys a and b to out.json",
        'Load {"a": 1} and print the value of a',
        "What does json.loads('{\"a\": 1}') return?",
        "Print each name on one line.",
        "Reply with one line of code",
        "Which files have a single line?",
        "Answer this about the log:\n" + "Format: @x[y]\n" * 2000,
        "Answer in words.\n\n[Standard input: 40 bytes\nFormat: @x[y]]",
    ],
)
def test_a_prompt_that_asks_for_no_form_is_left_alone(prompt: str) -> None:
    assert asked_form(prompt) is None


@pytest.mark.parametrize(
    ("prompt", "answer", "words"),
    [
        (FARE, "The mean fare is 34.65", "@mean_fare[...] is missing"),
        (FARE, "@mean_fare[]", "@mean_fare has no value"),
        (FARE, "@mean_fare[34 dollars]", "@mean_fare must be a number and is '34 dollars'"),
        (FARE, "@mean_fare[34.65123]", "@mean_fare must be rounded to 2 decimal places"),
        (TWO, "@p_value[0.03]", "@is_normal[...] is missing"),
        (KEYS, "There are 5 rows", "it is not JSON"),
        (KEYS, "[5]", "it is not a JSON object"),
        (KEYS, '{"rows": 5}', 'missing "mean"'),
        ("Answer in one line.", "a\n\nb", "it has 2 lines"),
    ],
)
def test_what_an_answer_lacks_is_said_in_one_line_with_the_form_repeated(prompt: str, answer: str, words: str) -> None:
    form = asked_form(prompt)
    assert form is not None
    said = form.fault(answer)
    assert said.startswith(f"{LACKS}: {words}")
    assert "nswer again " in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        (FARE, "The mean is @mean_fare[34.65]."),
        (FARE, "@mean_fare[1,034.65]"),
        (TWO, "**@p_value[0.03]** and\n@is_normal[no]"),
        (KEYS, 'Here:\n```json\n{"rows": 5, "mean": 2}\n```'),
        ("Answer in one line.", "yes\n"),
    ],
)
def test_an_answer_that_holds_the_form_has_no_fault(prompt: str, answer: str) -> None:
    form = asked_form(prompt)
    assert form is not None
    assert form.fault(answer) == ""


@pytest.mark.parametrize(
    ("prompt", "more"),
    [
        (FARE, False),
        ("Create a new feature FamilySize. Format: @mean_size[x]", False),
        ("Which store plots best? Format: @plot[x]", False),
        ("Save the cleaned table. Format: @rows[n]", True),
        ("Write the rows to clean.csv. Format: @rows[n]", True),
        ("Plot it. Format: @rows[n]", True),
    ],
)
def test_a_prompt_that_wants_something_made_too_is_known(prompt: str, more: bool) -> None:
    assert wants_more(prompt) is more


def test_of_what_is_told_of_a_cell_only_its_output_counts() -> None:
    told = "@a[1]\n[stderr]\nFutureWarning: x\n[12 rows were dropped]\n"
    assert stdout_of(told, ["12 rows were dropped"]) == "@a[1]"
    assert stdout_of("@a[1]\n[1, 2]") == "@a[1]\n[1, 2]"
