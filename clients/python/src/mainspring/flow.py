"""Workflows built in code.

    plan = flow.agent("plan", agent="planner", input=flow.input, output=Plan)
    dig = flow.foreach("dig", plan["topics"], lambda topic: flow.agent("finding", agent="researcher", input=topic))
    write = flow.agent("write", agent="writer", input=f"Write a page on these findings: {dig}")
    run = client.run(flow.workflow("research", flow.sequence(plan, dig, write)), "batteries")

A node, or `node["member"]`, stands for its result: in texts as a template, elsewhere as a reference."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from ._decode import Duration, plain
from ._schema import schema_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

OnError = Literal["halt", "continue"]
Op = Literal["eq", "ne", "in", "truthy", "falsy"]


class Retry(TypedDict, total=False):
    """When and how often a leaf is tried again."""

    max_attempts: int
    on: Sequence[Literal["failed", "empty", "hit_round_limit"]]
    backoff: Duration
    backoff_factor: float


class Leaf(TypedDict, total=False):
    """What every leaf may have."""

    when: Mapping[str, Any]
    """A condition, made by `when`: the leaf is skipped if it does not hold."""
    retry: Retry
    timeout: Duration
    """The time limit of one attempt."""
    fallback: Node
    """What runs in its place after all attempts have failed."""
    continue_on_error: bool
    """Its failure is none of the nodes around it."""


@dataclass(frozen=True)
class Ref:
    """A value that is known when the run gets there."""

    name: str

    def __str__(self) -> str:
        if not re.fullmatch(r"[A-Za-z_][\w.]*", self.name):
            raise ValueError(f"{self.name!r} cannot be used in a text: only ids of letters, digits and _ can")
        return f"{{{{{self.name}}}}}"

    def __getitem__(self, member: str) -> Ref:
        """A member of the value."""
        return Ref(f"{self.name}.{member}")


input: Ref = Ref("input")
"""What the run is started with."""


@dataclass(frozen=True)
class Node:
    """A node of a workflow."""

    json: dict[str, Any] = field(repr=False)
    id: str | None = None

    def __str__(self) -> str:
        return str(self.result)

    def __getitem__(self, member: str) -> Ref:
        return self.result[member]

    @property
    def result(self) -> Ref:
        if self.id is None:
            raise ValueError("only a node with an id has a result that others can use")
        return Ref(self.id)


@dataclass(frozen=True)
class Workflow:
    """A whole workflow, to be run."""

    name: str
    root: Node
    members: Mapping[str, Any] = field(default_factory=dict)

    def spec(self) -> dict[str, Any]:
        """The spec, as the API takes it."""
        return {"name": self.name, "root": self.root.json, **self.members}


def workflow(
    name: str, root: Node, *, max_tokens: int | None = None, timeout: Duration | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Workflow:
    """The root node with what holds for all of it."""
    budget = None if max_tokens is None else {"max_tokens": max_tokens}
    return Workflow(name, root, _given(budget=budget, timeout=timeout, metadata=metadata))


def when(value: Ref | Node, op: Op = "truthy", than: Any = None) -> dict[str, Any]:
    """A condition on a value: `when(plan["kind"], "eq", "short")`."""
    return _given(ref=_name(value), op=op, value=than)


def agent(
    id: str, *, agent: str | None = None, prompt: str | None = None, input: Any = input, output: Any = None,
    variables: Mapping[str, Any] | None = None, spec: Mapping[str, Any] | None = None, **leaf: Unpack[Leaf],
) -> Node:
    """A leaf that asks an agent: a published one, or one with this prompt and more members of a leaf's `spec`."""
    if (agent is None) == (prompt is None) or (agent and spec):
        raise ValueError("a leaf has either a published agent, or a prompt and what else its spec says")
    who = {"agent": agent} if agent else {"spec": {"name": id, "system_prompt": prompt, **(spec or {})}}
    schema = None if output is None else schema_of(output)
    return _node("agent", id, **who, input=_text(input), output_schema=schema, variables=variables, **leaf)


def tool(id: str, name: str, arguments: Mapping[str, Any] | None = None, **leaf: Unpack[Leaf]) -> Node:
    """A leaf that calls a tool. An argument that is a reference keeps the type of its value."""
    return _node("tool", id, tool=name, arguments=arguments, **leaf)


def approval(id: str, message: str, **leaf: Unpack[Leaf]) -> Node:
    """A leaf that asks a person: a no fails it, unless another node refers to `node["approved"]`."""
    return _node("approval", id, message=message, **leaf)


def wait(duration: Duration | None = None, *, until: str | Ref | None = None) -> Node:
    """A pause, or a wait until a time."""
    return _node("wait", None, duration=duration, until=until)


def sequence(*steps: Node) -> Node:
    """One after the other."""
    return _node("sequence", None, steps=steps)


def parallel(*branches: Node, max_concurrency: int = 5, on_error: OnError = "halt") -> Node:
    """All at once."""
    return _node("parallel", None, branches=branches, max_concurrency=max_concurrency, on_error=on_error)


def foreach(
    id: str, items: Ref | Node | list[Any], body: Callable[[Ref], Node], *, parallel: bool = True,
    max_concurrency: int = 5, on_error: OnError = "halt",
) -> Node:
    """The body for each item; the name of its argument is that of the variable. `node["items"]` are the results."""
    name = next(iter(inspect.signature(body).parameters))
    source: dict[str, Any] = {"items": items} if isinstance(items, list) else {"items_from": _name(items)}
    return _node(
        "foreach", id, **{"as": name}, **source, body=body(Ref(name)), parallel=parallel,
        max_concurrency=max_concurrency, on_error=on_error,
    )


def branch(on: Ref | Node, cases: Mapping[str, Node], default: Node | None = None) -> Node:
    """One of the cases, by the value's text."""
    return _node("branch", None, on=_name(on), cases=cases, default=default)


def loop(
    id: str, body: Node, until: Mapping[str, Any], *, max_iterations: int = 3,
    on_exhausted: Literal["fail", "continue"] = "fail", continue_nodes: Sequence[str] = (),
) -> Node:
    """The body until a condition on its nodes holds; `{{iteration}}` and `{{previous}}` are variables in it."""
    return _node(
        "loop", id, body=body, until=until, max_iterations=max_iterations, on_exhausted=on_exhausted,
        continue_nodes=list(continue_nodes) or None,
    )


def nested(id: str, workflow: Workflow, input: Any = input) -> Node:
    """A workflow within the run, which sees its own input only."""
    return _node("workflow", id, spec=workflow.spec(), input=_text(input))


def _node(kind: str, id: str | None, **members: Any) -> Node:
    return Node({"type": kind, **_given(id=id, **members)}, id)


def _given(**members: Any) -> dict[str, Any]:
    """Nodes as they are, references as templates."""
    return {name: _json(value) for name, value in members.items() if value is not None}


def _json(value: Any) -> Any:
    if isinstance(value, Node):
        return value.json
    if isinstance(value, Ref):
        return str(value)
    if isinstance(value, timedelta):
        return plain(value)
    if isinstance(value, Mapping):
        return {name: _json(each) for name, each in value.items()}
    return [_json(each) for each in value] if isinstance(value, (list, tuple)) else value


def _name(value: Ref | Node) -> str:
    return (value.result if isinstance(value, Node) else value).name


def _text(value: Any) -> str:
    """A text, or texts in order."""
    return "\n\n".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
