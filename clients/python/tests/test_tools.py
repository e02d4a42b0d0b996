"""The journal, and the loop with a real server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from servers import Dev

import mainspring as m
from mainspring import types
from mainspring.tools import Journal


def test_a_call_is_taken_once_at_a_time_and_remembered(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    first = journal.take("call_1")
    assert first and not first.begun
    assert Journal(tmp_path).take("call_1") is None, "another has it"
    assert journal.take("call_2"), "and nothing else"
    first.begin()
    first.release()
    second = journal.take("call_1")
    assert second and second.begun and second.result is None, "it was begun, and its outcome is unknown"
    second.end({"call_id": "call_1", "output": [1]})
    second.release()
    third = journal.take("call_1")
    assert third and third.result == {"call_id": "call_1", "output": [1]}
    third.forget()
    third.release()
    fourth = journal.take("call_1")
    assert fourth and not fourth.begun


def test_half_a_result_is_none(tmp_path: Path) -> None:
    (tmp_path / "call_1").write_bytes(b'begun\n{"call_id": "ca')
    entry = Journal(tmp_path).take("call_1")
    assert entry and entry.begun and entry.result is None


def test_once_needs_a_journal_and_names_are_unique() -> None:
    client = m.Client("http://127.0.0.1:1")

    @client.tool()
    def pay() -> None: ...

    with pytest.raises(ValueError, match="journal"):
        client.serve()
    with pytest.raises(ValueError, match="name of its own"):
        client.serve(pay, pay, journal="unused")
    with pytest.raises(ValueError, match="needs tools"):
        m.Client("http://127.0.0.1:1").serve()
    client.close()


def test_a_once_call_is_made_once_by_two_loops_with_one_journal(dev: Dev, tmp_path: Path) -> None:
    client, made = m.Client(dev.url), list[str]()

    @client.tool(repeat="once")
    def pay_once(invoice: int, *, call: types.WaitingCall) -> dict[str, int]:
        made.append(call.call_id)
        return {"paid": invoice}

    with client.serve(journal=tmp_path), client.serve(journal=tmp_path):
        sends = [client.session(tools=[pay_once]).send(f'!tool pay_once {{"invoice": {n}}}') for n in range(20)]
        texts = [send.wait("30s").text for send in sends]
    assert texts == [f'pay_once answered: {{"paid":{n}}}' for n in range(20)]
    assert len(made) == len(set(made)) == 20
    assert list(tmp_path.iterdir()) == [], "nothing is left of calls that were reported"
    client.close()


def test_async_tools_bad_arguments_and_results_that_are_none(dev: Dev) -> None:
    async def run() -> list[str]:
        async with m.AsyncClient(dev.url) as client:

            @client.tool(repeat="safe")
            async def half(n: int) -> float:
                await asyncio.sleep(0.01)
                return n / 2

            @client.tool(repeat="safe", name="nothing")
            def does_nothing() -> None: ...

            @client.tool(repeat="safe")
            def odd() -> object:
                return object()

            async with client.serve():
                texts = []
                for call in ('half {"n": 3}', "nothing {}", "odd {}"):
                    send = await client.session(tools=[*client.tools]).send(f"!tool {call}")
                    texts.append((await send.wait("30s")).text)
                return texts

    texts = asyncio.run(run())
    assert texts[0] == "half answered: 1.5"
    assert texts[1].startswith("nothing answered")
    assert "object cannot be written as JSON" in texts[2]


def test_a_loop_whose_key_is_not_accepted_ends_with_that(dev: Dev) -> None:
    client = m.Client(dev.url, key="msk_none")

    @client.tool(repeat="safe")
    def never() -> None: ...

    with pytest.raises(m.Denied):
        client.serve().run_forever()
    client.close()
