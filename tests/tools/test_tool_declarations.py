"""What a function tells of itself, and which functions cannot be tools."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from pinfold.tools import Argument, BadTool, Registry, Tool, as_tool, tool
from pinfold.tools.arguments import REQUIRED, model_of, read_docstring, schema_of

pytestmark = pytest.mark.unit


def google(path: str, depth: int = 1) -> str:
    """Look into a folder.

    As deep as asked.

    Args:
        path: The folder,
            relative to here.
        depth (int, optional): How deep: 1 is itself.

    Returns:
        The text.

    Raises:
        OSError: never
    """
    return path * depth


def plain(path: str, depth: int = 1) -> str:
    """Look into a folder.

    As deep as asked.

    Args:
        path: The folder, relative to here.
        depth: How deep: 1 is itself.
    """
    return path * depth


def numpy(path: str, depth: int = 1) -> str:
    """Look into a folder.

    As deep as asked.

    Parameters
    ----------
    path : str
        The folder,
        relative to here.
    depth : int, optional
        How deep: 1 is itself.

    Returns
    -------
    str
        The text.
    """
    return path * depth


def rest(path: str, depth: int = 1) -> str:
    """Look into a folder.

    As deep as asked.

    :param path: The folder,
        relative to here.
    :param int depth: How deep: 1 is itself.
    :returns: The text.
    :rtype: str
    """
    return path * depth


def notes(
    path: Annotated[str, "The folder, relative to here."],
    depth: Annotated[int, Field(description="How deep: 1 is itself.")] = 1,
) -> str:
    """Look into a folder.

    As deep as asked.
    """
    return path * depth


@pytest.mark.parametrize("function", [google, plain, numpy, rest, notes])
def test_every_style_of_docstring_says_the_same(function: Callable[..., Any]) -> None:
    schema = tool(function).schema
    assert schema.description == "Look into a folder.\n\nAs deep as asked."
    assert schema.parameters == {
        "additionalProperties": False,
        "properties": {
            "path": {"type": "string", "description": "The folder, relative to here."},
            "depth": {"type": "integer", "default": 1, "description": "How deep: 1 is itself."},
        },
        "required": ["path"],
        "type": "object",
    }


@pytest.mark.parametrize(
    "text", ["", "Args:", "Note: this is prose.\nAnd more.", "A list:\n\n- a: b\n- c", "Example: f(1)", ":param"]
)
def test_prose_stays_prose(text: str) -> None:
    assert read_docstring(text).text == text
    assert read_docstring(text).parameters == {}


@given(st.text(alphabet="ab:()*- \n\tArgsParameters", max_size=200))
def test_any_docstring_can_be_read(text: str) -> None:
    read_docstring(text)


def bare(x: Any, y: int = 1) -> None: ...


del bare.__annotations__["x"]


def yields() -> Iterator[int]:
    yield 1


async def yields_later() -> AsyncIterator[int]:
    yield 1


def wants_a_call(back: Callable[[], None]) -> None: ...
def wants_a_module(module: types.ModuleType) -> None: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (bare, "bare cannot be a tool: parameter 'x' has no type; write one, as in `x: str`"),
        (yields, "yields cannot be a tool: it yields; return a list instead"),
        (yields_later, "yields_later cannot be a tool: it yields; return a list instead"),
        (wants_a_call, "wants_a_call cannot be a tool: the type of 'back', "),
        (
            wants_a_module,
            "wants_a_module cannot be a tool: the type of 'module', module, has no form in JSON; use str, ",
        ),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused_where_it_is_declared(
    function: Callable[..., Any], words: str
) -> None:
    with pytest.raises(BadTool) as caught:
        tool(function)
    assert str(caught.value).startswith(words)
    assert "\n" not in str(caught.value)


def test_a_type_that_is_made_further_down_is_found_when_the_tool_is_used() -> None:
    module = types.ModuleType("made_later")
    sys.modules[module.__name__] = module
    code = (
        "from __future__ import annotations\nfrom pinfold import tool\n"
        "@tool\ndef f(when: Later) -> str:\n    return when.day\n"
        "from dataclasses import dataclass\n@dataclass\nclass Later:\n    day: str\n"
    )
    try:
        exec(code, module.__dict__)
        made = module.__dict__["f"]
        assert Registry([made]).schemas()[1].parameters["properties"]["when"] == {"$ref": "#/$defs/Later"}
        assert made.check_arguments({"when": {"day": "mon"}})["when"].day == "mon"
    finally:
        del sys.modules[module.__name__]


async def test_partials_methods_and_callable_objects_are_functions_too() -> None:
    class Adder:
        def method(self, a: int, b: int = 1) -> int:
            return a + b

        async def __call__(self, a: int) -> int:
            return a + 100

    given: list[tuple[Tool[..., Any], int]] = [
        (tool(name="part")(functools.partial(Adder().method, b=5)), 6),
        (as_tool(Adder().method), 2),
        (tool(name="obj")(Adder()), 101),
    ]
    registry = Registry([made for made, _ in given])
    for made, wanted in given:
        assert (await registry.call(made.name, {"a": 1})).value == wanted


def test_a_default_that_json_cannot_hold_is_left_out_of_the_schema() -> None:
    sentinel = object()

    @tool
    def f(x: int = sentinel) -> bool:  # type: ignore[assignment]
        return x is sentinel

    assert f.schema.parameters["properties"]["x"] == {"type": "integer"}
    assert f.check_arguments({})["x"] is sentinel


def list_of(hint: Any) -> Any:
    return list[hint]


def mapping_of(hint: Any) -> Any:
    return dict[str, hint]


def or_none(hint: Any) -> Any:
    return hint | None


plain_hints: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([str, int, float, bool, Any, Literal["a", "b"], Annotated[str, "words"]]),
    lambda inner: st.builds(list_of, inner) | st.builds(mapping_of, inner),
    max_leaves=4,
)
defaults = st.sampled_from([REQUIRED, None, "x", 1, 2.5, True, [], {"a": [1]}])


@given(
    st.lists(
        st.tuples(plain_hints | st.builds(or_none, plain_hints), defaults, st.sampled_from(["", "Words."])), max_size=4
    )
)
def test_a_schema_made_without_pydantic_is_the_one_pydantic_would_make(given: list[tuple[Any, Any, str]]) -> None:
    arguments = [
        Argument(name=f"a{number}", hint=hint, default=default, description=text)
        for number, (hint, default, text) in enumerate(given)
    ]
    from pinfold.tools.arguments import _by_pydantic  # pyright: ignore[reportPrivateUsage]

    def model() -> Any:
        return model_of("t", arguments, {})

    assert schema_of(arguments, model) == _by_pydantic(model())
