//! Tools of the caller's process.

use std::fmt::{self, Display};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::span::Span;
use crate::types::{ExternalTool, Repeat};

/// One call of a tool.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ToolCall {
    /// Its id: the same however often the call is made.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// What the model says.
    pub arguments: Value,
    /// The session that asks.
    pub session_id: String,
    /// The send that asks.
    pub send_id: String,
}

impl ToolCall {
    /// A call with these ids.
    pub fn new(
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: Value,
        session_id: impl Into<String>,
        send_id: impl Into<String>,
    ) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            arguments,
            session_id: session_id.into(),
            send_id: send_id.into(),
        }
    }
}

type Made = Arc<dyn Fn(ToolCall) -> BoxFuture<'static, Result<Value, String>> + Send + Sync>;

/// A closure that models may call.
#[derive(Clone)]
pub struct Tool {
    declared: ExternalTool,
    repeat: Repeat,
    make: Made,
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.declared.name;
        f.debug_struct("Tool")
            .field("name", name)
            .field("repeat", &self.repeat)
            .finish_non_exhaustive()
    }
}

impl Tool {
    /// A tool whose calls this closure makes. The model reads the description, and what the closure returns; an error is the
    /// call's error, of which it reads the text. Unless told otherwise, a call is not made again if this process dies over it.
    pub fn new<A, R, E, F>(
        name: impl Into<String>,
        description: impl Into<String>,
        function: impl Fn(A) -> F + Send + Sync + 'static,
    ) -> Self
    where
        A: DeserializeOwned,
        R: Serialize,
        E: Display,
        F: Future<Output = Result<R, E>> + Send + 'static,
    {
        Self::with_call(name, description, move |arguments, _| function(arguments))
    }

    /// The same, of which the closure also gets the call itself: its id, for instance, as an idempotency key.
    pub fn with_call<A, R, E, F>(
        name: impl Into<String>,
        description: impl Into<String>,
        function: impl Fn(A, ToolCall) -> F + Send + Sync + 'static,
    ) -> Self
    where
        A: DeserializeOwned,
        R: Serialize,
        E: Display,
        F: Future<Output = Result<R, E>> + Send + 'static,
    {
        let make = move |call: ToolCall| {
            let arguments = serde_json::from_value(call.arguments.clone());
            let made = arguments.map(|arguments| function(arguments, call));
            async move {
                let made = made.map_err(|error| format!("the arguments do not fit: {error}"))?;
                let value = made.await.map_err(|error| error.to_string())?;
                serde_json::to_value(value)
                    .map_err(|error| format!("the result is not JSON: {error}"))
            }
            .boxed()
        };
        Self {
            declared: ExternalTool {
                name: name.into(),
                description: Some(description.into()),
                ..ExternalTool::default()
            },
            repeat: Repeat::Once,
            make: Arc::new(make),
        }
    }

    /// The JSON Schema of its arguments, which the server checks: any object without one.
    #[must_use]
    pub fn parameters(mut self, schema: Value) -> Self {
        self.declared.parameters = match schema {
            Value::Object(schema) => Some(schema),
            _ => Some(Map::from_iter([("not".to_owned(), json!({}))])),
        };
        self
    }

    /// Whether a call that may have been made is made again after a death.
    #[must_use]
    pub fn repeat(mut self, repeat: Repeat) -> Self {
        self.repeat = repeat;
        self
    }

    /// A person has to approve each call.
    #[must_use]
    pub fn approval(mut self) -> Self {
        self.declared.approval = Some(true);
        self
    }

    /// How long a call waits for its result; forever if not set.
    #[must_use]
    pub fn deadline(mut self, deadline: impl Into<Span>) -> Self {
        self.declared.deadline = Some(deadline.into());
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.declared.name
    }

    /// What an agent lists in its `tools`.
    pub fn declaration(&self) -> ExternalTool {
        ExternalTool {
            repeat: Some(self.repeat.clone()),
            ..self.declared.clone()
        }
    }

    /// Whether a call is made again.
    pub fn repeats(&self) -> &Repeat {
        &self.repeat
    }

    /// Makes a call: its value, or what the model reads of the failure. A panic is one.
    pub fn call(
        &self,
        call: ToolCall,
    ) -> impl Future<Output = Result<Value, String>> + Send + use<> {
        let make = self.make.clone();
        let made = AssertUnwindSafe(async move { make(call).await }).catch_unwind();
        made.map(|made| made.unwrap_or_else(|_| Err("the tool broke off".to_owned())))
    }
}
