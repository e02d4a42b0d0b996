# pyright: strict
"""What type checkers know of a program: mypy and pyright check this file strictly, nothing runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import assert_type

import mainspring as m
from mainspring import flow, types, webhooks


@dataclass
class Decision:
    refund: bool
    amount: float


if TYPE_CHECKING:

    def sync(client: m.Client) -> None:
        session = client.session(agent={"system_prompt": "Be brief.", "tools": ["core"]}, metadata={"customer": "42"})
        send = session.send("Refund it?", output=Decision, priority="low", budget={"usd": 0.5})
        assert_type(send, m.Send[Decision])
        assert_type(send.wait("30s").output, Decision)
        assert_type(session.send("hello").wait().output, str)
        assert_type(session.send_and_wait("three", output=list[str]).output, list[str])
        assert_type(client.send("snd_1", output=Decision).wait().output.amount, float)
        with send.stream() as events:
            for event in events:
                match event.type:
                    case "tool_call.completed":
                        assert_type(event.name, str)
                    case "send.waiting":
                        assert_type(event.waiting_on, str | None)
                    case "unknown":
                        assert_type(event.name, str)
                    case _:
                        pass
            assert_type(events.answer.output, Decision)
        run = client.run(flow.workflow("w", flow.agent("a", prompt="You plan.")), "x", output=Decision)
        assert_type(run.wait().output, Decision)
        for change in run.stream():
            if change.type == "run.progress":
                assert_type(change.counts.live, int)
        for view in client.api.list_sends(status="waiting"):
            assert_type(view, types.SendView)
        session.send("x", priority="urgent")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
        session.send("x", colour="red")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]

        @client.tool(repeat="safe")
        def lookup(id: int) -> dict[str, str]:
            return {"id": str(id)}

        assert_type(lookup(1), dict[str, str])
        lookup("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    async def asynchronous(client: m.AsyncClient) -> None:
        send = await client.session().send("Refund it?", output=Decision)
        assert_type(send, m.AsyncSend[Decision])
        assert_type((await send.wait()).output, Decision)
        async with send.stream() as events:
            async for piece in events.text_deltas():
                assert_type(piece, m.TextPiece)
        async for view in client.api.list_sends():
            assert_type(view.usage.cost_usd, float | None)
        for made in await client.send_all([{"input": "a", "options": {"priority": "low"}}]):
            assert_type(made, m.AsyncSend[str] | m.ApiError)
        try:
            await send.wait()
        except m.AsyncWaiting as waiting:
            for question in waiting.questions:
                assert_type(await question.approve(), bool)

    def hook(body: bytes, headers: dict[str, str]) -> None:
        event = webhooks.verify(body, headers, "whsec_x")
        if isinstance(event.data, types.SendView):
            assert_type(event.data.output_text, str | None)
