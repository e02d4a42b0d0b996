//! Closures as tools of this process's worker.

use std::time::Duration;

use async_trait::async_trait;
use mainspring_client::{Tool as Closure, ToolCall};
use mainspring_shared::time::Span;
use mainspring_shared::tool::{Repeat, schema};
use mainspring_worker::tool::{Invocation, Output, Tool, ToolError, ToolSpec, Traits};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::error::Error;

/// A closure that the worker calls.
#[derive(Debug)]
pub(crate) struct Called {
    closure: Closure,
    traits: Traits,
}

impl Called {
    pub(crate) fn new(closure: Closure) -> Result<Self, Error> {
        let repeat: Repeat =
            serde_json::from_value(closure.repeats().as_str().into()).map_err(Error::setup)?;
        let mut traits = Traits::new(repeat);
        if let Some(deadline) = closure.declaration().deadline {
            let span: Span = deadline.to_string().parse().map_err(Error::setup)?;
            traits.timeout = span.0.max(Duration::from_millis(1));
        }
        Ok(Self { closure, traits })
    }
}

#[async_trait]
impl Tool for Called {
    fn spec(&self) -> ToolSpec {
        let declared = self.closure.declaration();
        ToolSpec {
            name: declared.name,
            description: declared.description.unwrap_or_default(),
            parameters: declared
                .parameters
                .map_or_else(schema::any_object, Value::Object),
        }
    }

    fn traits(&self) -> Traits {
        self.traits
    }

    fn kind(&self) -> &'static str {
        "embedded"
    }

    async fn call(&self, invocation: Invocation) -> Result<Output, ToolError> {
        let name = self.closure.name();
        let arguments = Value::Object(invocation.arguments);
        let session = invocation.session.session.to_string();
        let call = ToolCall::new(
            invocation.call_id,
            name,
            arguments,
            session,
            invocation.send_id.to_string(),
        );
        match self.closure.call(call).await {
            Ok(Value::String(text)) => {
                let value = Some(text.clone().into());
                Ok(Output {
                    value,
                    ..Output::text(text)
                })
            }
            Ok(value) => Ok(Output::json(value)),
            Err(message) => Err(ToolError::reply(message)),
        }
    }
}

/// The pool of all programs that have closures of these names: only they can make the calls.
pub(crate) fn pool<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    let hash = Sha256::digest(names.join("\n"));
    let hash = hash
        .iter()
        .take(6)
        .fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    format!("embedded-{hash}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_that_of_the_same_closures_in_any_order() {
        let of = |names: &[&'static str]| pool(names.iter().copied());
        assert_eq!(of(&["a", "b"]), of(&["b", "a"]));
        assert_ne!(of(&["a", "b"]), of(&["ab"]));
        assert_ne!(of(&["a"]), of(&["a", "b"]));
        assert!(mainspring_shared::tool::is_pool(&of(&["a"])));
    }
}
