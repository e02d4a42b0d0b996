//! Carries out the steps of a scenario.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use mainspring_client::types::{Agent, Asked, SendOptions, SendStatus};
use mainspring_client::{Answer, Client, Error, Kind, Question, SendHandle};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::process::{Child, Command};

use crate::reading::{Broke, Reading};
use crate::servers::Dev;
use crate::{Failed, must, text};

const PATIENCE: Duration = Duration::from_mins(1);

/// A loop's process, and the file that gets the id of each call.
struct Loop {
    child: Child,
    calls: PathBuf,
}

pub(crate) struct Player<'a> {
    client: Client,
    server: Option<&'a Dev>,
    recording: Option<Vec<Value>>,
    /// The key that was made, and who may revoke it.
    pub(crate) made: Option<(Client, String)>,
    sends: BTreeMap<String, SendHandle<String>>,
    /// Those of them whose answer is a value.
    values: BTreeMap<String, SendHandle<Value>>,
    readings: BTreeMap<String, Reading>,
    /// The cursors of streams that were left.
    left: BTreeMap<String, String>,
    questions: BTreeMap<String, Question>,
    loops: BTreeMap<String, Loop>,
}

/// What a step came to, beside an error of the client.
type Done = Result<(), Broke>;

impl From<Error> for Broke {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

impl From<Failed> for Broke {
    fn from(error: Failed) -> Self {
        Self::Rule(error)
    }
}

fn rule(holds: bool, words: impl FnOnce() -> String) -> Done {
    if holds {
        Ok(())
    } else {
        Err(Broke::Rule(words().into()))
    }
}

fn broken(error: impl std::error::Error + Send + Sync + 'static) -> Broke {
    Broke::Rule(Box::new(error))
}

impl<'a> Player<'a> {
    pub(crate) fn new(
        client: Client,
        server: Option<&'a Dev>,
        recording: Option<Vec<Value>>,
    ) -> Self {
        Self {
            client,
            server,
            recording,
            made: None,
            sends: BTreeMap::new(),
            values: BTreeMap::new(),
            readings: BTreeMap::new(),
            left: BTreeMap::new(),
            questions: BTreeMap::new(),
            loops: BTreeMap::new(),
        }
    }

    pub(crate) async fn play(&mut self, scenario: &Value) -> Result<(), Failed> {
        for step in scenario["steps"].as_array().into_iter().flatten() {
            let expect = &step["expect"];
            let played = match (self.step(step, expect).await, expect["raises"].as_str()) {
                (Err(Broke::Client(error)), Some(kind)) => raised(&error, kind, expect),
                (Ok(()), Some(kind)) => Err(format!("it does not raise {kind}").into()),
                (Err(Broke::Client(error)), None) => Err(format!("{error:?}").into()),
                (Err(Broke::Rule(error)), _) => Err(error),
                (Ok(()), None) => Ok(()),
            };
            played.map_err(|error| format!("{error}, in {step}"))?;
        }
        Ok(())
    }

    async fn step(&mut self, step: &Value, expect: &Value) -> Done {
        match text(&step["do"]) {
            "send" => self.send(step, expect).await,
            "wait" => self.wait(step, expect).await,
            "stream" => {
                let send = self.named(step)?;
                let after = step["after"].as_str().and_then(|name| self.left.get(name));
                let stream = match after {
                    Some(cursor) => send.stream_after(cursor),
                    None => send.stream(),
                };
                let name = step["as"].as_str().unwrap_or("it").to_owned();
                self.readings.insert(name.clone(), Reading::new(stream));
                self.read(&name, step, expect).await
            }
            "read" => self.read(text(&step["stream"]), step, expect).await,
            "leave" => {
                let name = text(&step["stream"]);
                let left = self.readings.remove(name);
                let cursor = left.and_then(|reading| reading.stream.cursor().map(str::to_owned));
                self.left
                    .extend(cursor.map(|cursor| (name.to_owned(), cursor)));
                Ok(())
            }
            "cancel" => {
                let ended = self.named(step)?.cancel().await?;
                rule(ended.status == SendStatus::Cancelled, || {
                    format!("it is {}", ended.status)
                })
            }
            "questions" => self.asked(step, expect).await,
            "approve" | "deny" => {
                let questions = self.named(step)?.questions().await?;
                let asked = questions
                    .iter()
                    .find(|one| one.call.wants == Asked::Permission);
                let asked = asked.ok_or_else(|| Broke::Rule("nobody wants permission".into()))?;
                let note = step["note"].as_str();
                let accepted = if step["do"] == "approve" {
                    asked.approve(note).await?
                } else {
                    asked.deny(note).await?
                };
                rule(
                    expect["accepted"].as_bool().unwrap_or(true) == accepted,
                    || format!("accepted: {accepted}"),
                )
            }
            "answer" => {
                let question = self.questions.get(text(&step["question"]));
                let question = question.ok_or_else(|| Broke::Rule("no such question".into()))?;
                let accepted = question.answer(step["value"].clone()).await?;
                rule(expect["accepted"] == accepted, || {
                    format!("accepted: {accepted}")
                })
            }
            "loop" => self.start_loop(step),
            "died" | "stop" => self.end_loop(step, expect).await,
            "kill" => self.dev()?.kill().map_err(broken),
            "start" => Ok(self.dev()?.again().await?),
            "revoke" => {
                let (admin, id) = self
                    .made
                    .as_ref()
                    .ok_or_else(|| Broke::Rule("no key was made".into()))?;
                Ok(admin.api().revoke_key(id).await?)
            }
            strange => Err(Broke::Rule(format!("nobody knows how to {strange}").into())),
        }
    }

    fn dev(&self) -> Result<&'a Dev, Broke> {
        self.server
            .ok_or_else(|| Broke::Rule("there is no such server".into()))
    }

    fn named(&self, step: &Value) -> Result<SendHandle<String>, Broke> {
        if let Some(id) = step["send_id"].as_str() {
            return Ok(self.client.send_by_id(id));
        }
        let found = self.sends.get(text(&step["send"]));
        found
            .cloned()
            .ok_or_else(|| Broke::Rule("no such send".into()))
    }

    async fn send(&mut self, step: &Value, expect: &Value) -> Done {
        let mut session = self.client.session();
        if let Some(earlier) = step["session"].as_str() {
            let earlier = self.named(&serde_json::json!({ "send": earlier }))?;
            session = self.client.session_by_id(earlier.get().await?.session_id);
        } else if !step["agent"].is_null() {
            let agent: Agent = serde_json::from_value(step["agent"].clone()).map_err(broken)?;
            session = session.agent(agent);
        }
        let mut send = session.send(text(&step["input"]));
        if !step["options"].is_null() {
            let options: SendOptions =
                serde_json::from_value(step["options"].clone()).map_err(broken)?;
            send = send.options(options);
        }
        if let Some(key) = step["key"].as_str() {
            send = send.key(key);
        }
        let name = step["as"].as_str().unwrap_or("it").to_owned();
        let sent = if step["output"].is_null() {
            send.await?
        } else {
            let typed = send.output::<Value>(step["output"].clone()).await?;
            let id = typed.id().to_owned();
            self.values.insert(name.clone(), typed);
            self.client.send_by_id(id)
        };
        if let Some(earlier) = expect["same_as"].as_str() {
            let same = self
                .sends
                .get(earlier)
                .is_some_and(|earlier| earlier.id() == sent.id());
            rule(same, || "it is another send".to_owned())?;
        }
        self.sends.insert(name, sent);
        Ok(())
    }

    async fn wait(&mut self, step: &Value, expect: &Value) -> Done {
        let limit = match step["timeout"].as_str() {
            Some(millis) => {
                Duration::from_millis(millis.trim_end_matches("ms").parse().map_err(broken)?)
            }
            None => PATIENCE,
        };
        if let Some(typed) = self.values.get(text(&step["send"])) {
            let answer = typed.wait_at_most(limit).await?;
            for member in expect["output_has"].as_array().into_iter().flatten() {
                let has = answer.output.get(text(member)).is_some();
                rule(has, || format!("the output has no {member}"))?;
            }
            return answered(&answer, expect);
        }
        let answer = self.named(step)?.wait_at_most(limit).await?;
        answered(&answer, expect)
    }

    async fn read(&mut self, name: &str, step: &Value, expect: &Value) -> Done {
        let reading = self.readings.get_mut(name);
        let reading = reading.ok_or_else(|| Broke::Rule("no such stream".into()))?;
        reading.read(&step["until"]).await?;
        reading.expected(expect, self.recording.as_ref())?;
        if !step["until"].is_null() {
            return Ok(());
        }
        let answer = reading.stream.answer().await?;
        let shown = reading.stream.text();
        rule(shown == answer.text, || {
            format!("the text is {shown:?} at the end")
        })?;
        answered(&answer, expect)
    }

    async fn asked(&mut self, step: &Value, expect: &Value) -> Done {
        let questions = self.named(step)?.questions().await?;
        let expected = expect.as_array().cloned().unwrap_or_default();
        rule(questions.len() == expected.len(), || {
            format!("{} questions", questions.len())
        })?;
        for (question, members) in questions.iter().zip(&expected) {
            let call = serde_json::to_value(&question.call).map_err(broken)?;
            for (name, value) in members.as_object().into_iter().flatten() {
                rule(call[name] == *value, || format!("{name} is {}", call[name]))?;
            }
        }
        if let (Some(name), Some(first)) = (step["as"].as_str(), questions.into_iter().next()) {
            self.questions.insert(name.to_owned(), first);
        }
        Ok(())
    }

    fn start_loop(&mut self, step: &Value) -> Done {
        let server = self.dev()?;
        let folder = server.folder.path();
        let name = text(&step["as"]).to_owned();
        // Scenarios share servers, but not files.
        let own = format!("{:p}-{name}", &raw const *self);
        let calls = folder.join(own);
        let lease = step["lease"].as_u64().map(|seconds| seconds.to_string());
        let program = std::env::current_exe().map_err(broken)?;
        let mut command = Command::new(program);
        command
            .args(["loop", &server.url, ""])
            .arg(&calls)
            .arg(lease.unwrap_or_default());
        command
            .arg(step["tool"].to_string())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let child = command.spawn().map_err(broken)?;
        self.loops.insert(name, Loop { child, calls });
        Ok(())
    }

    async fn end_loop(&mut self, step: &Value, expect: &Value) -> Done {
        let name = text(&step["loop"]);
        let told = self.loops.get_mut(name);
        let told = told.ok_or_else(|| Broke::Rule("no such loop".into()))?;
        let stops = step["do"] == "stop";
        let pid = told
            .child
            .id()
            .and_then(|id| Pid::from_raw(id.cast_signed()));
        if let (true, Some(pid)) = (stops, pid) {
            kill_process(pid, Signal::TERM).map_err(broken)?;
        }
        let status = told.child.wait().await.map_err(broken)?;
        let as_told = if stops {
            status.success()
        } else {
            status.signal() == Some(Signal::KILL.as_raw())
        };
        rule(as_told, || format!("the loop ended with {status}"))?;
        let calls = self.calls(name);
        if let Some(expected) = expect["calls"].as_u64() {
            rule(calls.len() as u64 == expected, || {
                format!("{} calls", calls.len())
            })?;
        }
        if let Some(other) = expect["same_call_as"].as_str() {
            rule(calls == self.calls(other), || {
                format!("other calls: {calls:?}")
            })?;
        }
        Ok(())
    }

    fn calls(&self, name: &str) -> Vec<String> {
        let file = self
            .loops
            .get(name)
            .map(|told| std::fs::read_to_string(&told.calls));
        let text = file.and_then(Result::ok).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

fn answered<T>(answer: &Answer<T>, expect: &Value) -> Done {
    let status = expect["status"].as_str().unwrap_or("completed");
    rule(answer.send.status.as_str() == status, || {
        format!("it is {}", answer.send.status)
    })?;
    if let Some(expected) = expect["text"].as_str() {
        rule(answer.text == expected, || {
            format!("its text is {:?}", answer.text)
        })?;
    }
    if let Some(part) = expect["text_has"].as_str() {
        rule(answer.text.contains(part), || {
            format!("its text is {:?}", answer.text)
        })?;
    }
    Ok(())
}

/// Whether an error is what is expected.
fn raised(error: &Error, expected: &str, expect: &Value) -> Result<(), Failed> {
    let kind = match error {
        Error::Api(error) => match error.kind {
            Kind::Invalid => "invalid",
            Kind::Denied => "denied",
            Kind::NotFound => "not_found",
            Kind::Conflict => "conflict",
            Kind::Limited => "limited",
            Kind::Unavailable => "unavailable",
            _ => "unexpected",
        },
        Error::Unreachable(_) => "unreachable",
        Error::Waiting { .. } => "waiting",
        Error::SendFailed(_) => "send_failed",
        Error::SendCancelled(_) => "send_cancelled",
        Error::Timeout(_) => "timeout",
        _ => "another",
    };
    must!(kind == expected, "{error:?} is {kind}");
    let api = match error {
        Error::Api(api) => Some(api),
        _ => None,
    };
    if let Some(status) = expect["status"].as_u64() {
        must!(
            api.is_some_and(|api| u64::from(api.status) == status),
            "{error:?} has another status"
        );
    }
    if let Some(code) = expect["code"].as_str() {
        must!(
            error.code().is_some_and(|it| it.as_str() == code),
            "{error:?} has another code"
        );
    }
    if let Some(pointers) = expect["pointers"].as_array() {
        let found = api
            .into_iter()
            .flat_map(|api| &api.errors)
            .map(|one| one.pointer.as_str());
        must!(
            found.eq(pointers.iter().map(text)),
            "{error:?} has other pointers"
        );
    }
    Ok(())
}
