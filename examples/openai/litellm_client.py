"""LiteLLM's client, over chat completions and over responses: answers, streams, a tool, a typed answer.

    pip install litellm
    export OPENAI_BASE_URL=http://127.0.0.1:7464/v1 OPENAI_API_KEY=msk_…
"""

import json

import litellm
from pydantic import BaseModel

MODEL = "openai/demo"
CALL = '!tool weather {"place": "Potsdam"}'
PARAMETERS = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}


class Weather(BaseModel):
    place: str
    degrees: int


def weather(place: str) -> str:
    return f"sun in {place}, 21 degrees"


def chat() -> None:
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}]
    answer = litellm.completion(model=MODEL, messages=said)
    assert answer.choices[0].message.content == "hello", answer
    assert answer.usage.completion_tokens > 0, answer

    said = [{"role": "user", "content": "one two three !stream 6x20ms"}]
    chunks = list(litellm.completion(model=MODEL, messages=said, stream=True, stream_options={"include_usage": True}))
    whole = litellm.stream_chunk_builder(chunks, messages=said)
    assert whole.choices[0].message.content.startswith("one two three"), whole
    assert len([chunk for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]) > 1

    # The program runs the function and sends its result.
    tools = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}]
    said = [{"role": "user", "content": CALL}]
    for stream in [False, True]:
        asked = litellm.completion(model=MODEL, messages=said, tools=tools, stream=stream)
        if stream:
            asked = litellm.stream_chunk_builder(list(asked), messages=said)
        message = asked.choices[0].message
        results = [
            {"role": "tool", "tool_call_id": call.id, "content": weather(**json.loads(call.function.arguments))}
            for call in message.tool_calls
        ]
        told = litellm.completion(model=MODEL, messages=[*said, message, *results], tools=tools)
        assert "sun in Potsdam" in told.choices[0].message.content, told

    said = [{"role": "user", "content": "fit"}]
    typed = litellm.completion(model=MODEL, messages=said, response_format=Weather)
    Weather.model_validate_json(typed.choices[0].message.content)


def responses() -> None:
    answer = litellm.responses(model=MODEL, input="hello", instructions="Be brief.")
    assert answer.output_text == "hello", answer
    text = ""
    for event in litellm.responses(model=MODEL, input="one two three !stream 6x20ms", stream=True):
        if event.type == "response.output_text.delta":
            text += event.delta
    assert text.startswith("one two three"), text

    tools = [{"type": "function", "name": "weather", "parameters": PARAMETERS}]
    asked = litellm.responses(model=MODEL, input=CALL, tools=tools)
    calls = [item for item in asked.output if item.type == "function_call"]
    results = [
        {"type": "function_call_output", "call_id": call.call_id, "output": weather(**json.loads(call.arguments))}
        for call in calls
    ]
    told = litellm.responses(model=MODEL, input=results, previous_response_id=asked.id, tools=tools)
    assert "sun in Potsdam" in told.output_text, told


chat()
responses()
