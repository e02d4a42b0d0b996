"""OpenAI's Agents SDK: answers, a stream, a tool, a typed answer, a handoff, and a conversation that the server keeps.

    pip install openai-agents
    export OPENAI_BASE_URL=http://127.0.0.1:7464/v1 OPENAI_API_KEY=msk_… OPENAI_AGENTS_DISABLE_TRACING=1
"""

import asyncio

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIConversationsSession,
    Runner,
    SQLiteSession,
    function_tool,
)
from openai import AsyncOpenAI
from pydantic import BaseModel

MODEL = "demo"
CALL = '!tool weather {"place": "Potsdam"}'


class Weather(BaseModel):
    place: str
    degrees: int


@function_tool
def weather(place: str) -> str:
    """The weather at a place."""
    return f"sun in {place}, 21 degrees"


async def text_of(result) -> str:
    text = ""
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            text += event.data.delta
    return text


async def use(model) -> None:
    agent = Agent(name="support", instructions="Be brief.", model=model, tools=[weather])

    answer = await Runner.run(agent, "hello")
    assert answer.final_output == "hello", answer.final_output
    assert answer.context_wrapper.usage.output_tokens > 0

    streamed = Runner.run_streamed(agent, "one two three !stream 6x20ms")
    text = await text_of(streamed)
    assert text == streamed.final_output != "", (text, streamed.final_output)

    # The SDK runs the function and sends its result.
    called = await Runner.run(agent, CALL)
    assert "sun in Potsdam" in called.final_output, called.final_output
    streamed = Runner.run_streamed(agent, CALL)
    assert "sun in Potsdam" in await text_of(streamed)

    # All that was said so far is sent again.
    again = await Runner.run(agent, [*called.to_input_list(), {"role": "user", "content": "thanks"}])
    assert again.final_output == "thanks", again.final_output

    typed = Agent(name="typed", model=model, output_type=Weather)
    assert isinstance((await Runner.run(typed, "fit")).final_output, Weather)

    other = Agent(name="billing", model=model, instructions="Bills.")
    first = Agent(name="first", model=model, handoffs=[other])
    handed = await Runner.run(first, "!tool transfer_to_billing {}")
    assert handed.last_agent.name == "billing", handed.last_agent.name

    session = SQLiteSession("a")
    for said in ["hi", CALL, "and on"]:
        result = await Runner.run(agent, said, session=session)
    assert result.final_output == "and on", result.final_output


async def main() -> None:
    await use(MODEL)
    await use(OpenAIChatCompletionsModel(model=MODEL, openai_client=AsyncOpenAI()))

    agent = Agent(name="support", model=MODEL, tools=[weather], model_settings=ModelSettings(store=True))
    # Each turn has only what is new.
    first = await Runner.run(agent, CALL)
    next_turn = await Runner.run(agent, "and on", previous_response_id=first.last_response_id)
    assert next_turn.final_output == "and on", next_turn.final_output

    chained = await Runner.run(agent, CALL, auto_previous_response_id=True)
    assert "sun in Potsdam" in chained.final_output, chained.final_output

    conversation = await AsyncOpenAI().conversations.create()
    for said, expected in [("hi", "hi"), (CALL, "sun in Potsdam"), ("and on", "and on")]:
        result = await Runner.run(agent, said, conversation_id=conversation.id)
        assert expected in result.final_output, result.final_output

    # The SDK keeps what was said in a conversation of the server, item by item.
    session = OpenAIConversationsSession()
    for said, expected in [("hi", "hi"), (CALL, "sun in Potsdam"), ("and on", "and on")]:
        result = await Runner.run(agent, said, session=session)
        assert expected in result.final_output, result.final_output
    assert len(await session.get_items()) >= 7
    await session.clear_session()


asyncio.run(main())
