"""Fills a database by way of LangGraph itself, and writes down what is in it, in the words of Mainspring.

    make_langgraph.py ADDRESS EXPECTED.json
"""

import base64
import contextlib
import json
import sys
from typing import Annotated, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\1" * 64).decode()
THREADS = 10


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    visits: int


def model(state):
    last = state["messages"][-1]
    text = last.content if isinstance(last.content, str) else last.content[0]["text"]
    if isinstance(last, ToolMessage):
        return {"messages": [AIMessage("It rains.", additional_kwargs={"reasoning_content": "hm"},
                                       usage_metadata={"input_tokens": 1, "output_tokens": 1, "total_tokens": 2})],
                "visits": 1}
    if "weather" in text:
        calls = [{"name": "look", "args": {"place": place, "deep": [1, 2.5, None, True]}, "id": f"call_{n}"}
                 for n, place in enumerate(["Ulm", "nowhere"])]
        return {"messages": [AIMessage([{"type": "text", "text": "Let me look."}], tool_calls=calls)]}
    if text == "ask":
        return {"messages": [AIMessage(str(interrupt("Which day?")))]}
    return {"messages": [AIMessage(f"You said {text} ☔")]}


def tools(state):
    found = []
    for call in state["messages"][-1].tool_calls:
        there = call["args"]["place"] != "nowhere"
        found.append(ToolMessage("rain" if there else "there is no such place", tool_call_id=call["id"], name="look",
                                 status="success" if there else "error", artifact={"raw": 1}))
    return {"messages": found}


def after(state):
    last = state["messages"][-1]
    return "tools" if isinstance(last, AIMessage) and last.tool_calls else "__end__"


def graph(saver):
    made = StateGraph(State)
    made.add_node("model", model)
    made.add_node("tools", tools)
    made.add_edge(START, "model")
    made.add_conditional_edges("model", after)
    made.add_edge("tools", "model")
    return made.compile(checkpointer=saver)


def opened(address):
    if "://" in address:
        from langgraph.checkpoint.postgres import PostgresSaver
        return PostgresSaver.from_conn_string(address)
    from langgraph.checkpoint.sqlite import SqliteSaver
    return SqliteSaver.from_conn_string(address)


def message(one):
    parts = [one.content] if isinstance(one.content, str) else one.content
    texts = [part if isinstance(part, str) else part["text"] for part in parts if isinstance(part, str) or part["type"] == "text"]
    images = [part for part in parts if not isinstance(part, str) and part["type"].startswith("image")]
    roles = {"human": "user", "ai": "assistant", "tool": "tool"}
    return {"role": roles[one.type], "text": "\n\n".join(text for text in texts if text), "images": len(images),
            "calls": [[call["name"], call["args"]] for call in getattr(one, "tool_calls", [])],
            "name": "look" if one.type == "tool" else None, "data": [PNG] if images else []}


def main(address, target):
    with contextlib.ExitStack() as stack:
        saver = stack.enter_context(opened(address))
        saver.setup()
        app = graph(saver)
        expected = []
        for n in range(THREADS):
            thread = f"{type(saver).__name__}-{n}"
            config = {"configurable": {"thread_id": thread}}
            said = [[SystemMessage("Be brief."), HumanMessage("hello")], [HumanMessage(f"and {n}")]]
            if n == 0:
                said += [[HumanMessage("weather?")], [HumanMessage("weather again?")]]
                said += [[HumanMessage([{"type": "text", "text": "and here?"},
                                        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}])]]
                said += [[HumanMessage([{"type": "text", "text": "or here?"},
                                        {"type": "image", "base64": PNG, "mime_type": "image/png"}])]]
            if n == 1:
                said += [[HumanMessage("ask")]]
            for messages in said:
                app.invoke({"messages": messages, "visits": n}, config)
            # As the library itself reads it, without what was not yet written.
            stored = saver.get_tuple(config).checkpoint["channel_values"]["messages"]
            expected.append({"id": thread, "system_prompt": "Be brief.", "metadata": {},
                             "messages": [message(one) for one in stored if one.type != "system"]})
    with open(target, "w") as file:
        json.dump(expected, file)


main(*sys.argv[1:])
