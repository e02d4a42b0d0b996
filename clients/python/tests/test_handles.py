"""Handles with a real server: what the scenario file does not have."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest
from servers import Dev

import mainspring as m
from mainspring import flow


@dataclass
class Plan:
    topics: list[str]


def plan_and_dig() -> flow.Workflow:
    plan = flow.agent("plan", prompt="You plan.", output=Plan, retry={"max_attempts": 2, "backoff": "1s"})
    dig = flow.foreach("dig", plan["topics"], lambda topic: flow.agent("finding", prompt="You dig.", input=topic))
    both = flow.parallel(
        flow.agent("long", prompt="You write.", input=f"Long: {dig}", when=flow.when(plan["topics"])),
        flow.agent("short", prompt="You write.", input=f"Short: {dig}", timeout="1m", continue_on_error=True),
    )
    ok = flow.approval("ok", f"Publish {plan['topics']}?")
    last = flow.branch(ok["approved"], {"true": flow.agent("publish", prompt="You publish.", input=[dig, "done"])})
    return flow.workflow("research", flow.sequence(plan, dig, both, flow.wait("10ms"), ok, last), timeout="2m")


def test_a_workflow_built_in_code_runs(dev: Dev) -> None:
    with m.Client(dev.url) as client:
        workflow = plan_and_dig()
        assert client.api.validate_workflow({"spec": workflow.spec()}).nodes["agent"] == 5
        run = client.run(workflow, "tea", key="run-1")
        assert client.run(workflow, "tea", key="run-1").id == run.id
        until = time.monotonic() + 30
        while not (questions := run.questions()):
            assert time.monotonic() < until
            time.sleep(0.05)
        assert questions[0].text.startswith("Publish")
        assert questions[0].approve()
        assert run.wait("30s").text.endswith("done")
        with run.stream() as events:
            assert [event.type for event in events][-1] == "run.completed"
        assert {node.state for node in run.nodes()} == {"completed"}


def test_a_wait_ends_in_time_also_where_nobody_answers() -> None:
    with m.Client("http://127.0.0.1:1") as client:
        begin = time.monotonic()
        with pytest.raises(TimeoutError):
            client.send("snd_1").wait("500ms")
        assert time.monotonic() - begin < 10


def test_a_run_that_fails_says_so(dev: Dev) -> None:
    with m.Client(dev.url) as client:
        run = client.run(flow.workflow("fails", flow.agent("a", prompt="You fail.", input="!fail 400")))
        with pytest.raises(m.RunFailed) as raised:
            run.wait("30s")
        assert raised.value.code == "llm.invalid_request"
        assert next(iter(run.nodes())).state == "failed"
        assert run.retry().status != "completed"
        with pytest.raises(m.RunFailed):
            run.wait("30s")
        slow = client.run(flow.workflow("slow", flow.agent("a", prompt="You sleep.", input="!sleep 60s")))
        assert slow.pause().paused_at
        assert slow.resume().paused_at is None
        assert slow.cancel("enough").status == "cancelled"
        with pytest.raises(m.RunCancelled):
            client.run_by_id(slow.id).wait()
        with pytest.raises(TimeoutError):
            client.run(flow.workflow("slow", flow.agent("a", prompt="You sleep.", input="!sleep 60s"))).wait("100ms")


def test_a_workflow_that_cannot_be_is_refused_here_or_with_all_its_problems(dev: Dev) -> None:
    with pytest.raises(ValueError, match="published agent"):
        flow.agent("a", agent="planner", prompt="You plan.")
    with pytest.raises(ValueError, match="only a node with an id"):
        str(flow.sequence())
    with pytest.raises(ValueError, match="cannot be used in a text"):
        str(flow.agent("my-plan", prompt="You plan."))
    with m.Client(dev.url) as client, pytest.raises(m.Invalid) as raised:
        client.run(flow.workflow("odd", flow.agent("a", prompt="{{nothing}}", input="{{nowhere}}")))
    assert raised.value.code == "spec.invalid" and raised.value.errors


def test_a_session_is_one_for_its_key_and_can_be_forked(dev: Dev) -> None:
    with m.Client(dev.url) as client:
        first, second = client.session(key="customer-42"), client.session(key="customer-42")
        assert first.send_and_wait("one").text == "one"
        assert second.open() == first.id
        copy = first.fork(seq=2)
        assert copy.send_and_wait("two", timeout="30s").text == "two"
        assert [entry.role for entry in copy.messages()] == ["user", "assistant"] * 2
        assert len(list(first.messages())) == 2
        first.delete()
        with pytest.raises(m.NotFound):
            first.get()


def test_lists_are_filtered(dev: Dev) -> None:
    with m.Client(dev.url) as client:
        made = [client.session(metadata={"of": "lists", "n": str(n)}).open() for n in range(3)]
        assert [view.id for view in client.api.list_sessions(metadata={"of": "lists"}, limit=2)] == made[::-1]
        assert [view.id for view in client.api.list_sessions(metadata={"of": "lists", "n": "1"})] == [made[1]]
        assert client.api.list_sessions(limit=1).page().next_cursor


def test_a_steered_send_reads_the_message(dev: Dev) -> None:
    with m.Client(dev.url) as client:
        send = client.session().send("slow !sleep 60s")
        until = time.monotonic() + 30
        while send.get().status != "running":
            assert time.monotonic() < until
            time.sleep(0.02)
        send.steer("quick", interrupt=True)
        assert send.wait("30s").text == "quick"


def test_a_timer_sends_and_starts_runs(dev: Dev) -> None:
    with m.Client(dev.url) as client:
        session = client.session()
        once = client.timer(after="1s").send(session, "hello", priority="low")
        assert len(once.next) == 1
        report = flow.workflow("report", flow.agent("a", prompt="You report."))
        daily = client.timer(cron="0 6 * * *", timezone="Europe/Berlin").run(report)
        assert len(daily.next) == 5
        assert daily.pause().status == "paused"
        assert daily.resume().status == "armed"
        assert daily.cancel().status == "cancelled"
        until = time.monotonic() + 30
        while not (fired := list(once.occurrences())):
            assert time.monotonic() < until
            time.sleep(0.1)
        assert fired[0].send_id and client.send(fired[0].send_id).wait("30s").text == "hello"


def test_a_timer_is_changed_and_fired_by_hand(dev: Dev) -> None:
    with m.Client(dev.url) as client:
        session = client.session()
        hourly = client.timer(every="1h").send(session, "hello")
        assert hourly.change({"every": "2h", "input": "good evening", "max_occurrences": 3}).every == "2h"
        assert len(hourly.next) == 3
        hourly.fire()
        until = time.monotonic() + 30
        while not (fired := list(hourly.occurrences())):
            assert time.monotonic() < until
            time.sleep(0.1)
        assert fired[0].manual
        assert fired[0].send_id and client.send(fired[0].send_id).wait("30s").text == "good evening"
        assert len(hourly.get().next) == 2


def test_a_token_is_for_one_session(dev: Dev) -> None:
    with m.Client(dev.url) as client:
        session, other = client.session(), client.session()
        token = session.token(["read", "use"], "1m")
        with m.Client(dev.url, key=token) as page:
            assert page.session(id=session.id).send_and_wait("hello").text == "hello"
            with pytest.raises(m.NotFound):
                page.session(id=other.open()).send_and_wait("hello")


def test_answers_are_of_their_type(dev: Dev) -> None:
    with m.Client(dev.url) as client:
        answer = client.session().send_and_wait("plan", output=Plan)
        assert isinstance(answer.output, Plan)
        assert isinstance(client.session().send_and_wait("plan", output=list[str]).output[0], str)


def test_all_questions_of_the_tenant(dev: Dev) -> None:
    with m.Client(dev.url) as client:
        send = client.session(agent={"tools": ["ask_person"]}).send('!tool ask_person {"question": "Now?", "kind": "confirm"}')
        with pytest.raises(m.Waiting) as raised:
            send.wait("30s")
        assert [question.text for question in raised.value.questions] == ["Now?"]
        asked = {question.id: question for question in client.questions()}
        assert asked[raised.value.questions[0].id].answer(True)
        assert send.wait("30s").text == "ask_person answered: yes"
