"""A typed Python function as a tool. Schema and checks come from its signature and docstring."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Generic, ParamSpec, TypeVar, cast, get_type_hints, overload

from pinfold.events import Effect, Json, ToolSchema
from pinfold.tools.errors import BadTool, ToolFailed

if TYPE_CHECKING:
    import pydantic

P = ParamSpec("P")
R = TypeVar("R")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_NAMED_KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class Tool(Generic[P, R]):
    """Still callable as the plain function it was made from."""

    function: Callable[P, R]
    name: str
    description: str
    effect: Effect
    timeout_s: float
    parallel_safe: bool
    parameters: Mapping[str, Json] | None = None
    """The schema of its arguments where it is known without asking pydantic."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    @cached_property
    def schema(self) -> ToolSchema:
        parameters = self.parameters
        if parameters is None:
            made = self._arguments.model_json_schema()
            made.pop("title", None)
            parameters = made
        return ToolSchema(name=self.name, description=self.description, parameters=parameters)

    def checked(self, args: Json) -> Mapping[str, Any]:
        """Arguments fit for the function, or ToolFailed saying exactly what to fix."""
        import pydantic

        try:
            given = self._arguments.model_validate(args)
        except pydantic.ValidationError as error:
            faults = "; ".join(
                f"{'.'.join(map(str, fault['loc'])) or 'arguments'}: {fault['msg']}"
                for fault in error.errors()
            )
            raise ToolFailed(f"wrong arguments for {self.name}: {faults}") from error
        return {field.alias or name: getattr(given, name) for name, field in type(given).model_fields.items()}

    @cached_property
    def _arguments(self) -> type[pydantic.BaseModel]:
        # pydantic costs 0.1 s to import: only when a tool is really used.
        import pydantic

        fields: dict[str, Any] = {}
        try:
            hints = get_type_hints(self.function, include_extras=True)
            for number, parameter in enumerate(inspect.signature(self.function).parameters.values()):
                default = ... if parameter.default is parameter.empty else parameter.default
                # Under names of our own: `schema`, `copy` or `_x` are fine parameters but no fields for pydantic.
                alias = pydantic.Field(alias=parameter.name)
                fields[f"p{number}"] = (Annotated[hints.get(parameter.name, Any), alias], default)
            return pydantic.create_model(
                self.name,
                __config__=pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=False),
                **fields,
            )
        except (pydantic.errors.PydanticUserError, NameError, SyntaxError, TypeError) as error:
            raise BadTool(f"{self.name} cannot be a tool: {error}") from error


@overload
def tool(function: Callable[P, R]) -> Tool[P, R]: ...
@overload
def tool(
    *,
    effect: Effect = "once",
    name: str | None = None,
    timeout_s: float = 60.0,
    parallel_safe: bool | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    function: Callable[P, R] | None = None,
    *,
    effect: Effect = "once",
    name: str | None = None,
    timeout_s: float = 60.0,
    parallel_safe: bool | None = None,
) -> Tool[P, R] | Callable[[Callable[P, R]], Tool[P, R]]:
    """Make a function a tool: `@tool` or `@tool(effect="pure")`.

    `effect` says whether a call may be repeated: `pure` freely, `keyed` under the same key, `once` never.
    Only `pure` tools run side by side unless `parallel_safe` says otherwise.
    """

    def make(function: Callable[P, R]) -> Tool[P, R]:
        title = name or getattr(function, "__name__", "")
        if not _NAME.fullmatch(title):
            raise BadTool(f"{title!r} cannot be a tool's name: use letters, digits and underscores")
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind not in _NAMED_KINDS:
                raise BadTool(
                    f"{title} cannot be a tool: parameter {parameter.name!r} has no name to pass it by"
                )
        return Tool(
            function=function,
            name=title,
            description=inspect.getdoc(function) or "",
            effect=effect,
            timeout_s=timeout_s,
            parallel_safe=effect == "pure" if parallel_safe is None else parallel_safe,
        )

    return make if function is None else make(function)


def as_tool(given: Callable[..., Any]) -> Tool[..., Any]:
    """A tool as it is; a plain function with the defaults of `@tool`."""
    return cast("Tool[..., Any]", given) if isinstance(given, Tool) else tool(given)
