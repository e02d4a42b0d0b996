"""Workflows built in code.

    plan = flow.agent("plan", agent="planner", input=flow.input, output=Plan)
    dig = flow.foreach("dig", plan["topics"], lambda topic: flow.agent("finding", agent="researcher", input=topic))
    write = flow.agent("write", agent="writer", input=f"Write a page on these findings: {dig}")
    run = client.run(flow.workflow("research", flow.sequence(plan, dig, write)), "batteries")

A node, or `node["member"]`, stands for its result: in texts as a template, elsewhere as a reference."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ._decode import Duration, plain
from ._schema import schema_of

OnError = Literal["halt", "continue"]
Condition = dict[str, Any]


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

    def as_json(self) -> str:
        """In arguments, a text that is one template keeps the type of its value."""
        return str(self)

    def eq(self, value: Any) -> Condition:
        return {"ref": self.name, "op": "eq", "value": value}

    def ne(self, value: Any) -> Condition:
        return {"ref": self.name, "op": "ne", "value": value}

    def one_of(self, *values: Any) -> Condition:
        return {"ref": self.name, "op": "in", "value": list(values)}

    def truthy(self) -> Condition:
        return {"ref": self.name, "op": "truthy"}

    def falsy(self) -> Condition:
        return {"ref": self.name, "op": "falsy"}


input = Ref("input")
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

    def as_json(self) -> str:
        return str(self)

    def when(self, condition: Condition) -> Node:
        """The node, skipped if the condition does not hold."""
        return Node({**self.json, "when": condition}, self.id)

    def retrying(
        self, max_attempts: int, *, on: tuple[str, ...] = ("failed",), backoff: Duration = "1s", factor: float = 2
    ) -> Node:
        """The leaf, tried so often."""
        retry = {"max_attempts": max_attempts, "on": list(on), "backoff": _duration(backoff), "backoff_factor": factor}
        return Node({**self.json, "retry": retry}, self.id)

    def otherwise(self, fallback: Node) -> Node:
        """The leaf, or this node if all attempts failed."""
        return Node({**self.json, "fallback": fallback.json}, self.id)

    def tolerated(self) -> Node:
        """The leaf, whose failure is none of the nodes around it."""
        return Node({**self.json, "continue_on_error": True}, self.id)

    def within(self, timeout: Duration) -> Node:
        """The leaf, with a time limit for each attempt."""
        return Node({**self.json, "timeout": _duration(timeout)}, self.id)


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
    budget = None if max_tokens is None else {"max_tokens": max_tokens}
    return Workflow(name, root, _given(budget=budget, timeout=timeout and _duration(timeout), metadata=metadata))


def agent(
    id: str, *, agent: str | None = None, prompt: str | None = None, input: Any = input, output: Any = None,
    variables: Mapping[str, Any] | None = None, **spec: Any,
) -> Node:
    """A leaf that asks an agent: a published one, or one with this prompt and these members of a leaf's `spec`."""
    if (agent is None) == (prompt is None):
        raise ValueError("a leaf has either a published agent or a prompt")
    who: dict[str, Any] = {"agent": agent} if agent else {"spec": {"name": id, "system_prompt": prompt, **spec}}
    if agent and spec:
        raise ValueError(f"a published agent is what it was published as: {', '.join(spec)}")
    schema = None if output is None else schema_of(output)
    return _node("agent", id, **who, input=_text(input), output_schema=schema, variables=variables)


def tool(id: str, name: str, **arguments: Any) -> Node:
    """A leaf that calls a tool."""
    return _node("tool", id, tool=name, arguments=_deep(arguments))


def approval(id: str, message: str) -> Node:
    """A leaf that asks a person; `node["approved"]` decides elsewhere if it is used, else a no fails it."""
    return _node("approval", id, message=message)


def wait(duration: Duration | None = None, *, until: str | Ref | None = None) -> Node:
    return _node("wait", None, duration=duration and _duration(duration), until=until and str(until))


def sequence(*steps: Node) -> Node:
    return _node("sequence", None, steps=[step.json for step in steps])


def parallel(*branches: Node, max_concurrency: int = 5, on_error: OnError = "halt") -> Node:
    return _node(
        "parallel", None, branches=[each.json for each in branches], max_concurrency=max_concurrency, on_error=on_error
    )


def foreach(
    id: str, items: Ref | Node | list[Any], body: Callable[[Ref], Node], *, parallel: bool = True,
    max_concurrency: int = 5, on_error: OnError = "halt",
) -> Node:
    """The body for each item; the name of its argument is that of the variable. `node["items"]` are the results."""
    name = next(iter(inspect.signature(body).parameters))
    source: dict[str, Any] = {"items": items} if isinstance(items, list) else {"items_from": _name(items)}
    return _node(
        "foreach", id, **{"as": name}, **source, body=body(Ref(name)).json, parallel=parallel,
        max_concurrency=max_concurrency, on_error=on_error,
    )


def branch(on: Ref | Node, cases: Mapping[str, Node], default: Node | None = None) -> Node:
    chosen = {case: node.json for case, node in cases.items()}
    return _node("branch", None, on=_name(on), cases=chosen, default=default and default.json)


def loop(
    id: str, body: Node, until: Condition, *, max_iterations: int = 3, on_exhausted: Literal["fail", "continue"] = "fail",
    continue_nodes: tuple[str, ...] = (),
) -> Node:
    """The body until a condition on its nodes holds; `{{iteration}}` and `{{previous}}` are variables in it."""
    return _node(
        "loop", id, body=body.json, until=until, max_iterations=max_iterations, on_exhausted=on_exhausted,
        continue_nodes=list(continue_nodes) or None,
    )


def nested(id: str, workflow: Workflow, input: Any = input) -> Node:
    """A workflow within the run, which sees its own input only."""
    return _node("workflow", id, spec=workflow.spec(), input=_text(input))


def _node(kind: str, id: str | None, **members: Any) -> Node:
    return Node({"type": kind, **_given(id=id, **members)}, id)


def _given(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _name(value: Ref | Node) -> str:
    return (value.result if isinstance(value, Node) else value).name


def _text(value: Any) -> str:
    """A text, or texts in order."""
    return "\n\n".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _deep(value: Any) -> Any:
    if isinstance(value, (Ref, Node)):
        return str(value)
    if isinstance(value, dict):
        return {name: _deep(each) for name, each in value.items()}
    return [_deep(each) for each in value] if isinstance(value, (list, tuple)) else value


def _duration(duration: Duration) -> str:
    return duration if isinstance(duration, str) else str(plain(duration))
