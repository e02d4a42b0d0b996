//! Calls that a server works on as tasks: it gives a handle at once, and is asked for the result
//! until there is one. The handle is stored with the call, so another worker takes the task up.

use std::collections::BTreeSet;
use std::time::Duration;

use mainspring_shared::error::Code;
use mainspring_worker::tool::{Invocation, ProgressReport};
use rmcp::model::JsonObject;
use serde_json::{Value, json};

use super::client::Limits;
use super::fault::Fault;
use super::inquiring::Questions;
use super::server::Server;

/// The member of a stored handle with the task's id.
const HANDLE: &str = "mcp_task";

/// How often a task is asked for, if its server does not say, and the bounds of what it may say.
const POLL_DEFAULT: Duration = Duration::from_secs(2);
const POLL_MIN: Duration = Duration::from_millis(500);
const POLL_MAX: Duration = Duration::from_mins(1);

/// Characters of an id that are believed, and of a status message that are shown.
const ID_CHARS_MAX: usize = 1_000;
const MESSAGE_CHARS_MAX: usize = 500;

/// A task as its server describes it, in the form of the protocol of November 2025 or of the
/// extension that followed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Task {
    pub(super) id: String,
    status: String,
    message: Option<String>,
    poll: Duration,
    result: Option<Value>,
    error: Option<Value>,
    /// What it asks, by the server's names for it.
    requests: Option<JsonObject>,
}

impl Task {
    /// The task that the answer to a call begins, if it is one.
    pub(super) fn begun(answer: &Value) -> Option<Self> {
        match answer.get("task") {
            Some(task) => Self::read(task),
            None if answer.get("resultType")? == "task" => Self::read(answer),
            None => None,
        }
    }

    fn read(said: &Value) -> Option<Self> {
        let word = |name: &str| said.get(name).and_then(Value::as_str);
        let id = word("taskId").filter(|id| id.len() <= ID_CHARS_MAX)?;
        let poll = ["pollInterval", "pollIntervalMs"]
            .into_iter()
            .find_map(|name| said.get(name));
        let poll = poll.and_then(Value::as_u64).map(Duration::from_millis);
        let message = word("statusMessage").map(|message| {
            let shown = message.chars().filter(|c| !c.is_control());
            shown.take(MESSAGE_CHARS_MAX).collect()
        });
        Some(Self {
            id: id.to_owned(),
            status: word("status").unwrap_or("working").to_owned(),
            message,
            poll: poll.unwrap_or(POLL_DEFAULT).clamp(POLL_MIN, POLL_MAX),
            result: said
                .get("result")
                .filter(|result| !result.is_null())
                .cloned(),
            error: said.get("error").filter(|error| !error.is_null()).cloned(),
            requests: said
                .get("inputRequests")
                .and_then(Value::as_object)
                .cloned(),
        })
    }

    /// What is stored with the call.
    pub(super) fn handle(&self) -> Value {
        json!({ HANDLE: self.id })
    }

    fn wants_input(&self) -> bool {
        self.status == "input_required"
    }

    fn is_working(&self) -> bool {
        // A state that nobody knows yet is waited for, like one that is known: the limit ends it.
        !matches!(
            &*self.status,
            "completed" | "failed" | "cancelled" | "input_required"
        )
    }
}

/// The id of the task that an earlier attempt of the call began.
pub(super) fn taken_up(invocation: &Invocation) -> Option<String> {
    let id = invocation.kept.handle()?.get(HANDLE)?.as_str()?;
    Some(id.to_owned())
}

/// Asks for a task until it has a result. A connection that breaks meanwhile is opened again, for
/// as long as the caller waits.
pub(super) async fn follow(
    server: &Server,
    invocation: &Invocation,
    id: &str,
    (limits, questions): (Limits, &mut Questions),
) -> Result<Value, Fault> {
    let answer = followed(server, invocation, id, limits, questions).await;
    // A question stays until it is answered, which the next attempt does.
    if !matches!(answer, Err(Fault::Asks(_)))
        && let Ok(connection) = server.connection().await
    {
        connection.task_is_over(id);
    }
    answer
}

async fn followed(
    server: &Server,
    invocation: &Invocation,
    id: &str,
    limits: Limits,
    questions: &mut Questions,
) -> Result<Value, Fault> {
    let mut seen = 0_u32;
    // The questions of the task that were answered, by the server's names for them.
    let mut given = BTreeSet::new();
    loop {
        // What it asked an earlier attempt, or during an earlier request.
        if let Ok(connection) = server.connection().await
            && connection.open_question_of(id, questions)? > 0
        {
            // The answer is on its way, beside the requests: a task that has not got it yet would ask again.
            server.clock().sleep(POLL_MIN).await;
        }
        let said = asked(server, invocation, "tasks/get", id, (limits, None)).await;
        let task = match said {
            Ok(said) => Task::read(&said).ok_or_else(|| {
                Fault::Failed("its server describes the task in another way".to_owned())
            })?,
            // The task goes on whether or not its server is there.
            Err(Fault::Unreached(_) | Fault::Broken(_) | Fault::Silent(_)) => {
                server.clock().sleep(POLL_DEFAULT).await;
                continue;
            }
            Err(fault) => return Err(fault),
        };
        if let Some(mut requests) = task.requests.clone().filter(|_| task.wants_input()) {
            requests.retain(|name, _| !given.contains(name));
            let answers = questions.answers(&requests, server.secrets())?;
            given.extend(answers.keys().cloned());
            if !answers.is_empty() {
                answer(server, invocation, id, limits, answers).await?;
            }
        }
        if task.is_working() || (task.wants_input() && task.requests.is_some()) {
            seen += 1;
            invocation.progress.report(ProgressReport {
                progress: f64::from(seen),
                total: None,
                message: task.message.clone(),
            });
            server.clock().sleep(task.poll).await;
            continue;
        }
        let wants_input = task.wants_input();
        return match (task.result, task.error, &*task.status) {
            (Some(result), _, _) => Ok(result),
            (None, Some(error), _) => Err(refused(&error)),
            (None, None, "cancelled") => {
                let said = "its server has cancelled the task";
                Err(Fault::Refused(Code::ToolFailed, said.to_owned()))
            }
            // What it asks comes with this request, if it wants input.
            (None, None, _) => {
                let answer = (limits, Some(&mut *questions));
                let answer = asked(server, invocation, "tasks/result", id, answer).await;
                // It goes on whether or not its server is there.
                if wants_input
                    && matches!(
                        answer,
                        Err(Fault::Unreached(_) | Fault::Broken(_) | Fault::Silent(_))
                    )
                {
                    server.clock().sleep(POLL_DEFAULT).await;
                    continue;
                }
                answer
            }
        };
    }
}

fn refused(error: &Value) -> Fault {
    let said = error.get("message").and_then(Value::as_str);
    let said: String = said
        .unwrap_or("its task failed")
        .chars()
        .take(MESSAGE_CHARS_MAX)
        .collect();
    Fault::Refused(Code::ToolFailed, said)
}

async fn asked(
    server: &Server,
    invocation: &Invocation,
    method: &'static str,
    id: &str,
    (limits, questions): (Limits, Option<&mut Questions>),
) -> Result<Value, Fault> {
    let connection = server.connection().await;
    let connection = connection.map_err(|error| Fault::Unreached(error.to_string()))?;
    let answer = connection.of_task(method, id, invocation, limits);
    let answer = match questions {
        None => answer.await,
        Some(questions) => tokio::select! {
            biased;
            answer = answer => answer,
            asks = connection.questions_of(id, questions) => Err(asks),
        },
    };
    if matches!(answer, Err(Fault::Unreached(_) | Fault::Broken(_))) {
        server.give_up(&connection).await;
    }
    answer
}

/// Gives a task the answers to what it asks.
async fn answer(
    server: &Server,
    invocation: &Invocation,
    id: &str,
    limits: Limits,
    answers: JsonObject,
) -> Result<(), Fault> {
    let connection = server.connection().await;
    let connection = connection.map_err(|error| Fault::Unreached(error.to_string()))?;
    let told = connection.answer_task(id, answers, invocation, limits);
    told.await.map(|_| ())
}

/// Tells the server that a task's result is not wanted any longer.
pub(super) async fn cancel(server: &Server, invocation: &Invocation, id: &str) {
    let limits = Limits {
        idle: POLL_DEFAULT,
        total: POLL_DEFAULT,
    };
    // What it answers changes nothing.
    let _ = asked(server, invocation, "tasks/cancel", id, (limits, None)).await;
    if let Ok(connection) = server.connection().await {
        connection.task_is_over(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_read_in_both_forms_and_a_result_is_none() {
        let nested = json!({"task": {"taskId": "t", "status": "working", "pollInterval": 1}});
        let task = Task::begun(&nested).expect("a task");
        assert_eq!((&*task.id, task.poll), ("t", POLL_MIN));
        assert!(task.is_working());
        let flat = json!({"resultType": "task", "taskId": "u", "pollIntervalMs": 9_000_000});
        assert_eq!(Task::begun(&flat).expect("a task").poll, POLL_MAX);
        for other in [
            json!({"content": []}),
            json!({"task": "t"}),
            json!({"taskId": "t"}),
            json!(null),
        ] {
            assert_eq!(Task::begun(&other), None, "{other}");
        }
    }
}
