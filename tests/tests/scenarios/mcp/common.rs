//! Cases for both transports.

use mainspring_shared::message::{ContentPart, ImageSource};
use mainspring_shared::tool::Repeat;
use serde_json::json;

use super::*;

/// Tools are listed, named and described; results of every kind arrive.
pub(crate) async fn a_healthy_server_is_used(pool: &Pool) {
    let listed = tools(pool).await.unwrap();
    let expected = [
        "die",
        "die_once_keyed",
        "die_once_safe",
        "die_safe",
        "fail",
        "grow",
        "hang",
        "hang_safe",
        "image",
        "listen",
        "meta",
        "nonsense",
        "refuse",
        "text_say",
        "value",
    ];
    let names: Vec<&str> = listed.keys().map(String::as_str).collect();
    let (suffixed, plain): (Vec<&str>, Vec<&str>) = names
        .into_iter()
        .partition(|name| name.starts_with("text_say_"));
    assert_eq!(plain, expected);
    let [dotted] = suffixed.as_slice() else {
        panic!("{suffixed:?}");
    };

    let spec = listed["text_say"].spec();
    assert_eq!(spec.description, "Does text_say.");
    assert_eq!(spec.parameters["properties"]["marker"]["type"], "string");
    for (name, repeat) in [
        (*dotted, Repeat::Safe),
        ("die_once_keyed", Repeat::Keyed),
        ("value", Repeat::Once),
    ] {
        assert_eq!(listed[name].traits().repeat, repeat, "{name}");
    }

    assert_eq!(
        text(call(pool, dotted, json!({"a": 1})).await),
        r#"dot {"a":1}"#
    );
    assert_eq!(text(call(pool, "text_say", json!({})).await), "line {}");
    assert_eq!(text(call(pool, "meta", json!({})).await), r#""call_1_0_0""#);
    let value = call(pool, "value", json!({})).await.unwrap();
    assert_eq!(value.value, Some(json!({"n": 1})));
    let image = call(pool, "image", json!({})).await.unwrap().content;
    let source = ImageSource::Base64 {
        media_type: "image/png".to_owned(),
        data: "iVBORw0KGgo=".to_owned(),
    };
    let seen = [ContentPart::text("see"), ContentPart::Image { source }];
    assert_eq!(image, seen);
    let failed = refusal(call(pool, "fail", json!({})).await);
    assert_eq!(failed, (Code::ToolFailed, "it went wrong".to_owned()));
    let refused = refusal(call(pool, "refuse", json!({})).await);
    let expected = "the tool refuses: not like this".to_owned();
    assert_eq!(refused, (Code::ToolInvalidArguments, expected));
}

/// A prefix and a list of tools name and restrict the available tools.
pub(crate) async fn an_agent_chooses_and_prefixes(pool: &Pool) {
    let chosen = wanted("my_", Some(&["value", "nothing", "text.say"]));
    let tools = pool.tools(&chosen).await.unwrap();
    let names: Vec<String> = tools.iter().map(|tool| tool.spec().name).collect();
    assert_eq!(names[0], "my_value");
    assert!(names[1].starts_with("my_text_say_"), "{names:?}");
    assert_eq!(names.len(), 2);
    let said = tools[1].call(invocation(json!({}))).await;
    assert_eq!(text(said), "dot {}");
}

/// A call that never ends is abandoned; the server keeps serving others.
pub(crate) async fn a_call_that_hangs_ends_in_time(pool: &Pool) {
    let (code, message) = refusal(call(pool, "hang", json!({})).await);
    assert_eq!(code, Code::ToolUnknownOutcome, "{message}");
    let (code, message) = refusal(call(pool, "hang_safe", json!({})).await);
    assert_eq!(code, Code::ToolTimeout, "{message}");
    assert_eq!(text(call(pool, "text_say", json!({})).await), "line {}");
}

/// A stopped call returns at once.
pub(crate) async fn a_stopped_call_ends(pool: &Pool) {
    let tool = tool(pool, "hang").await;
    let invocation = invocation(json!({}));
    invocation.stop.cancel();
    let (code, _) = refusal(tool.call(invocation).await);
    assert_eq!(code, Code::ToolInterrupted);
}

/// A tool that is added later is available once the server has announced it.
pub(crate) async fn a_changed_list_is_asked_for_again(pool: &Pool) {
    assert!(!tools(pool).await.unwrap().contains_key("grown"));
    assert_eq!(text(call(pool, "grow", json!({})).await), "grown");
    let appeared = async {
        while !tools(pool).await.unwrap().contains_key("grown") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, appeared)
        .await
        .expect("the notice arrives");
}

/// A server that dies during a call is restarted for the next one; repeatable calls are repeated.
pub(crate) async fn a_server_that_dies_in_a_call_is_started_again(pool: &Pool) {
    let folder = tempfile::tempdir().unwrap();
    for name in ["die_once_safe", "die_once_keyed"] {
        let marker = folder.path().join(name);
        let survived = call(pool, name, json!({"marker": marker})).await;
        assert_eq!(text(survived), "survived", "{name}");
    }
    let (code, message) = refusal(call(pool, "die", json!({})).await);
    assert_eq!(code, Code::ToolUnknownOutcome, "{message}");
    assert_eq!(text(call(pool, "text_say", json!({})).await), "line {}");
    let (code, message) = refusal(call(pool, "die_safe", json!({})).await);
    assert_eq!(code, Code::ToolFailed, "{message}");
    assert_eq!(text(call(pool, "text_say", json!({})).await), "line {}");
}
