"""Pydantic AI, over chat completions and over responses: answers, streams, a tool, a typed answer.

    pip install 'pydantic-ai-slim[openai]'
    export OPENAI_BASE_URL=http://127.0.0.1:7464/v1 OPENAI_API_KEY=msk_…
"""

import asyncio

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel, OpenAIResponsesModelSettings

MODEL = "demo"
CALL = '!tool weather {"place": "Potsdam"}'


class Weather(BaseModel):
    place: str
    degrees: int


async def use(model) -> None:
    agent = Agent(model, instructions="Be brief.")

    @agent.tool_plain
    def weather(place: str) -> str:
        """The weather at a place."""
        return f"sun in {place}, 21 degrees"

    answer = await agent.run("hello")
    assert answer.output == "hello", answer.output
    assert answer.usage.output_tokens > 0, answer.usage

    async with agent.run_stream("one two three !stream 6x20ms") as streamed:
        pieces = [piece async for piece in streamed.stream_text(delta=True, debounce_by=None)]
    assert len(pieces) > 1 and "".join(pieces).startswith("one two three"), pieces

    # The agent runs the tool and sends its result.
    called = await agent.run(CALL)
    assert "sun in Potsdam" in called.output, called.output
    async with agent.run_stream(CALL) as streamed:
        assert "sun in Potsdam" in await streamed.get_output()

    thanks = await agent.run("thanks", message_history=called.all_messages())
    assert thanks.output == "thanks", thanks.output

    # The answer fits a schema, or is what a tool is called with.
    native = Agent(model, output_type=NativeOutput(Weather))
    assert isinstance((await native.run("fit")).output, Weather)
    by_tool = Agent(model, output_type=Weather)
    typed = await by_tool.run('!tool final_result {"place": "Potsdam", "degrees": 21}')
    assert typed.output == Weather(place="Potsdam", degrees=21), typed.output


async def main() -> None:
    await use(OpenAIChatModel(MODEL))
    await use(OpenAIResponsesModel(MODEL))

    # Each turn has only what is new.
    settings = OpenAIResponsesModelSettings(openai_previous_response_id="auto")
    agent = Agent(OpenAIResponsesModel(MODEL), model_settings=settings)
    first = await agent.run("hi")
    second = await agent.run("and on", message_history=first.all_messages())
    assert second.output == "and on", second.output


asyncio.run(main())
