//! Parsing a single directive.

use std::time::Duration;

use mainspring_shared::time::Span;
use serde_json::{Map, Value};

use super::script::{Fail, Limited, Script, ScriptError};

/// Parses the directive after `[[` into `script` and returns the text after its `]]`.
pub(super) fn read<'t>(script: &mut Script, text: &'t str) -> Result<&'t str, ScriptError> {
    // The JSON may itself contain `]]`, so it is parsed first.
    if let Some(after) = text.strip_prefix("tool ")
        && let Some((name, after)) = after.split_once(' ')
        && !name.contains("]]")
    {
        let mut values = serde_json::Deserializer::from_str(after).into_iter::<Value>();
        if let Some(Ok(arguments)) = values.next()
            && let Some(rest) = after[values.byte_offset()..]
                .trim_start()
                .strip_prefix("]]")
        {
            script.tools.push((name.to_owned(), arguments));
            return Ok(rest);
        }
    }
    let Some((directive, rest)) = text.split_once("]]") else {
        return Err(ScriptError {
            directive: text.chars().take(80).collect(),
        });
    };
    let (name, arguments) = directive.split_once(' ').unwrap_or((directive, ""));
    let words: Vec<&str> = arguments.split_whitespace().collect();
    set(script, name, arguments.trim(), &words)
        .map(|()| rest)
        .ok_or_else(|| ScriptError {
            directive: directive.to_owned(),
        })
}

fn set(script: &mut Script, name: &str, text: &str, words: &[&str]) -> Option<()> {
    let flag = words.is_empty().then_some(true);
    match (name, words) {
        ("session", [mark]) => script.session = Some((*mark).to_owned()),
        ("send", [mark]) => script.send = Some((*mark).to_owned()),
        ("say", _) => script.say = Some(text.to_owned()),
        ("reason", _) => script.reason = Some(text.to_owned()),
        ("tool", [name]) => script
            .tools
            .push(((*name).to_owned(), Value::Object(Map::new()))),
        ("rounds", [count]) => script.rounds = Some(count.parse().ok()?),
        ("delay", [wait]) => script.delay = Some(span(wait)?),
        ("stream", [pace]) => {
            let (count, pause) = pace.split_once('x')?;
            let count = count.parse().ok().filter(|count| *count > 0)?;
            script.stream = Some((count, span(pause)?));
        }
        ("fail", [status, rest @ ..]) => {
            let status = status.parse().ok().filter(|s| (300..600).contains(s))?;
            let (times, retry_after) = match rest {
                [] => (None, None),
                [one] => (one.parse().ok(), span(one)),
                [times, wait] => (Some(times.parse().ok()?), Some(span(wait)?)),
                _ => return None,
            };
            if rest.len() == 1 && times.is_none() && retry_after.is_none() {
                return None;
            }
            script.fail = Some(Limited {
                what: Fail {
                    status,
                    retry_after,
                },
                times,
            });
        }
        ("hang", [wait, times @ ..]) => script.hang = Some(limited(span(wait)?, times)?),
        ("silent", [wait, times @ ..]) => script.silent = Some(limited(span(wait)?, times)?),
        ("cut", [after, times @ ..]) => script.cut = Some(limited(after.parse().ok()?, times)?),
        ("error", [kind, times @ ..]) => {
            script.error = Some(limited((*kind).to_owned(), times)?);
        }
        ("garbage", times) => script.garbage = Some(limited((), times)?),
        ("badutf8", _) => script.badutf8 = flag?,
        ("split", _) => script.split = flag?,
        ("length", _) => script.length = flag?,
        ("refuse", _) => script.refuse = flag?,
        ("nousage", _) => script.nousage = flag?,
        ("bounded", _) => script.bounded = flag?,
        _ => return None,
    }
    Some(())
}

fn limited<T>(what: T, times: &[&str]) -> Option<Limited<T>> {
    let times = match times {
        [] => None,
        [times] => Some(times.parse().ok()?),
        _ => return None,
    };
    Some(Limited { what, times })
}

fn span(text: &str) -> Option<Duration> {
    text.parse().ok().map(|Span(wait)| wait)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn directives_are_read_wherever_they_stand() {
        let text = "do [[session s1]] it [[send 7]] [[tool f {\"a\":[[1]]}]][[tool g]] [[fail 429 2 1s]] \
            [[hang 3s 1]] [[cut 2]] [[stream 20x10ms]] [[say it is done]] [[split]] [single]";
        let script: Script = text.parse().expect("all are known");
        assert_eq!(script.session.as_deref(), Some("s1"));
        assert_eq!(script.send.as_deref(), Some("7"));
        assert_eq!(
            script.tools,
            [("f".into(), json!({"a": [[1]]})), ("g".into(), json!({}))]
        );
        let fail = script.fail.expect("it fails");
        assert_eq!(
            fail.what,
            Fail {
                status: 429,
                retry_after: Some(Duration::from_secs(1))
            }
        );
        assert!(fail.at(2).is_some() && fail.at(3).is_none());
        assert_eq!(
            script.hang,
            Some(Limited {
                what: Duration::from_secs(3),
                times: Some(1)
            })
        );
        assert_eq!(
            script.cut,
            Some(Limited {
                what: 2,
                times: None
            })
        );
        assert_eq!(script.stream, Some((20, Duration::from_millis(10))));
        assert_eq!(script.say.as_deref(), Some("it is done"));
        assert!(script.split && !script.length);
    }

    #[test]
    fn a_slip_of_the_pen_is_an_error() {
        for text in [
            "[[fial 500]]",
            "[[fail]]",
            "[[fail 500 often]]",
            "[[stream 0x1ms]]",
            "[[hang 1]]",
            "[[split now]]",
            "[[open",
            "[[tool a b]]",
        ] {
            assert!(text.parse::<Script>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_text_replaces_what_the_script_for_all_says_and_keeps_the_rest() {
        let all: Script = "[[delay 1s]][[fail 500]]".parse().expect("known");
        let one: Script = "[[fail 429 1]]".parse().expect("known");
        let both = one.over(all);
        assert_eq!(both.delay, Some(Duration::from_secs(1)));
        assert_eq!(both.fail.map(|f| f.what.status), Some(429));
    }
}
