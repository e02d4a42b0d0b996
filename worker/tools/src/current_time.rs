//! `current_time`: the current time, which no model knows.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::tz::TimeZone;
use mainspring_shared::time::Clock;
use mainspring_shared::tool::Repeat;
use serde::Deserialize;
use serde_json::json;

use crate::catalogue::{Listed, NOTHING, tool};
use crate::files::work::{arguments, invalid};
use mainspring_worker::tool::{Invocation, Output, Tool, ToolError, ToolSpec, Traits};

pub(crate) const TOOLS: [Listed<Arc<dyn Clock>>; 1] = [tool(
    "current_time",
    NOTHING,
    "returns the current date and time",
    |clock| {
        Arc::new(CurrentTime {
            clock: clock.clone(),
        })
    },
)];

#[derive(Debug)]
pub(crate) struct CurrentTime {
    pub(crate) clock: Arc<dyn Clock>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[serde(default)]
    timezone: Option<String>,
}

#[async_trait]
impl Tool for CurrentTime {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "current_time".into(),
            description: "Returns the current date, weekday and time.".into(),
            parameters: json!({
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "timezone": {
                        "type": "string",
                        "minLength": 1,
                        "description": "An IANA name like Europe/Berlin; UTC by default.",
                    },
                },
            }),
        }
    }

    fn traits(&self) -> Traits {
        Traits::new(Repeat::Safe)
    }

    async fn call(&self, invocation: Invocation) -> Result<Output, ToolError> {
        let Arguments { timezone } = arguments(invocation.arguments)?;
        let zone = match timezone.as_deref() {
            None => TimeZone::UTC,
            Some(name) => TimeZone::get(name).map_err(|_| {
                invalid(format!(
                    "{name} is not a time zone; try one like \
                                              Asia/Tokyo"
                ))
            })?,
        };
        let now = jiff::Timestamp::from_millisecond(self.clock.now().0);
        let now = now.map_err(|error| ToolError::reply(error.to_string()))?;
        let now = now.to_zoned(zone);
        let said = now.strftime("%A, %Y-%m-%dT%H:%M:%S%:z");
        let zone = now.time_zone().iana_name().unwrap_or("UTC");
        Ok(Output::text(format!("{said} ({zone})")))
    }
}
