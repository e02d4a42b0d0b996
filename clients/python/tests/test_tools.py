"""The loop with a real server."""

from __future__ import annotations

import asyncio
import threading

import pytest
from servers import Dev

import mainspring as m
from mainspring import types


def test_names_are_unique_and_leases_have_bounds() -> None:
    client = m.Client("http://127.0.0.1:1")

    @client.tool()
    def pay() -> None: ...

    with pytest.raises(ValueError, match="3600 seconds"):
        client.serve(lease=0.5)
    with pytest.raises(ValueError, match="name of its own"):
        client.serve(pay, pay)
    with pytest.raises(ValueError, match="needs tools"):
        m.Client("http://127.0.0.1:1").serve()
    client.close()


def test_a_call_is_made_once_by_two_loops(dev: Dev) -> None:
    client, made = m.Client(dev.url), list[str]()

    @client.tool(repeat="once")
    def pay_once(invoice: int, *, call: types.CallToMake) -> dict[str, int]:
        made.append(call.call_id)
        return {"paid": invoice}

    with client.serve(), client.serve():
        sends = [client.session(tools=[pay_once]).send(f'!tool pay_once {{"invoice": {n}}}') for n in range(20)]
        texts = [send.wait("30s").text for send in sends]
    assert texts == [f'pay_once answered: {{"paid":{n}}}' for n in range(20)]
    assert len(made) == len(set(made)) == 20
    client.close()


def test_a_call_that_takes_longer_than_its_lease_stays_its_loops(dev: Dev) -> None:
    client, made = m.Client(dev.url), list[str]()

    @client.tool(repeat="safe", name="slow_one")
    def slow_one(*, call: types.CallToMake) -> int:
        made.append(call.call_id)
        threading.Event().wait(3.0)
        return call.attempt

    with client.serve(lease=1.0), client.serve(lease=1.0):
        answer = client.session(tools=[slow_one]).send("!tool slow_one {}").wait("30s")
    assert answer.text == "slow_one answered: 1"
    assert len(made) == 1
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
