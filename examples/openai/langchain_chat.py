"""LangChain's ChatOpenAI, over chat completions and over responses: answers, streams, a tool, a typed answer.

    pip install langchain-openai
    export OPENAI_BASE_URL=http://127.0.0.1:7464/v1 OPENAI_API_KEY=msk_…
"""

import asyncio

from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

MODEL = "demo"
CALL = '!tool weather {"place": "Potsdam"}'


class Weather(BaseModel):
    """The weather at a place."""

    place: str
    degrees: int


@tool
def weather(place: str) -> str:
    """The weather at a place."""
    return f"sun in {place}, 21 degrees"


async def use(chat: ChatOpenAI) -> None:
    answer = chat.invoke([SystemMessage("Be brief."), HumanMessage("hello")])
    assert answer.text == "hello", answer
    assert answer.usage_metadata["output_tokens"] > 0, answer

    pieces = [piece.text for piece in chat.stream("one two three !stream 6x20ms")]
    assert len([piece for piece in pieces if piece]) > 1, pieces
    assert "".join(pieces).startswith("one two three"), pieces

    pieces = [piece.text async for piece in chat.astream("abcdef !stream 3x10ms")]
    assert "".join(pieces).startswith("abcdef"), pieces

    # The program runs the tool and sends its result.
    with_tool = chat.bind_tools([weather])
    said = [HumanMessage(CALL)]
    asked = with_tool.invoke(said)
    said += [asked, *[weather.invoke(call) for call in asked.tool_calls]]
    assert isinstance(said[-1], ToolMessage), said
    told = with_tool.invoke(said)
    assert "sun in Potsdam" in told.text, told
    thanks = with_tool.invoke([*said, told, HumanMessage("thanks")])
    assert thanks.text == "thanks", thanks

    whole = None
    for piece in with_tool.stream(CALL):
        whole = piece if whole is None else whole + piece
    assert whole.tool_calls[0]["args"] == {"place": "Potsdam"}, whole

    for method in ["json_schema", "function_calling"]:
        words = "fit" if method == "json_schema" else '!tool Weather {"place": "Potsdam", "degrees": 21}'
        typed = chat.with_structured_output(Weather, method=method).invoke(words)
        assert isinstance(typed, Weather), typed


async def main() -> None:
    await use(ChatOpenAI(model=MODEL))
    await use(ChatOpenAI(model=MODEL, use_responses_api=True))
    await use(ChatOpenAI(model=MODEL, use_responses_api=True, output_version="responses/v1"))

    # Each turn has only what is new.
    chat = ChatOpenAI(model=MODEL, use_previous_response_id=True)
    said = [HumanMessage("hi")]
    said += [chat.invoke(said), HumanMessage("and on")]
    assert chat.invoke(said).text == "and on"


asyncio.run(main())
