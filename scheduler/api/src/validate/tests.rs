use super::super::bodies::SendBody;
use super::super::extract::parse;
use super::super::problem::Problem;
use super::*;

fn pointers(body: &str) -> Vec<String> {
    let parsed: Result<SendBody, _> = parse(body.as_bytes(), "");
    let error = match parsed {
        Err(error) => error,
        Ok(body) => {
            let mut checks = Checks::new();
            checks.input(&body.input);
            checks.options(body.options);
            match checks.finish() {
                Ok(()) => return Vec::new(),
                Err(error) => error,
            }
        }
    };
    let json = serde_json::to_value(Problem::from(error)).expect("json");
    let errors = json["errors"].as_array().cloned().unwrap_or_default();
    let pointer = |e: &Value| e["pointer"].as_str().unwrap_or_default().to_owned();
    if errors.is_empty() {
        vec![format!("! {}", json["detail"].as_str().unwrap_or_default())]
    } else {
        errors.iter().map(pointer).collect()
    }
}

#[test]
fn faults_are_pointed_at() {
    let bodies = [
        r#"{"input":"hi"}"#,
        r#"{"input":[{"type":"text","text":"hi"}]}"#,
        r#"{"input":"hi","options":{"priority":-5,"deadline":"30s","delay":"0s","on_busy":"reject"}}"#,
        "{}",
        r#"{"input":""}"#,
        r#"{"input":[]}"#,
        r#"{"input":7}"#,
        r#"{"input":null}"#,
        r#"{"input":"a\u0000b"}"#,
        r#"{"input":"\ud800"}"#,
        r#"{"input":[{"type":"image","url":"x"}]}"#,
        r#"{"input":[{"type":"text","text":"a"},{"type":"text","text":"b\u0000"}]}"#,
        r#"{"input":[{"type":"text","text":"a","more":1}]}"#,
        r#"{"input":"hi","colour":"red"}"#,
        r#"{"input":"hi","options":{"colour":"red"}}"#,
        r#"{"input":"hi","options":{"max_rounds":0}}"#,
        r#"{"input":"hi","options":{"max_rounds":-1}}"#,
        r#"{"input":"hi","options":{"deadline":"soon"}}"#,
        r#"{"input":"hi","options":{"deadline":"0s","model":""}}"#,
        r#"{"input":"hi","options":{"priority":"urgent"}}"#,
        r#"{"input":"hi","options":{"priority":101}}"#,
        r#"{"input":"hi","options":{"on_busy":"steer"}}"#,
        r#"{"input":"hi","options":{"on_busy":"explode"}}"#,
        r#"{"input":"hi","options":{"tools":[],"budget":{},"output_schema":{"type":"nonsense"}}}"#,
        r#"{"input":"hi","options":{"output_schema":{"type":"object"}}}"#,
        r#"{"input":"hi","options":{"output_schema":{"type":"json_object"}}}"#,
        r#"{"input":"hi","options":{"output_schema":{"type":"json_object","required":["a"]}}}"#,
        r#"{"input":"hi","options":{"max_tokens":0,"temperature":2.5,"top_p":-1}}"#,
        r#"{"input":"hi","options":{"max_tokens":9,"temperature":2,"top_p":1,"reasoning_effort":"xhigh","parallel_tool_calls":false,"tool_choice":"required"}}"#,
        r#"{"input":"hi","options":{"reasoning_effort":"huge"}}"#,
        r#"{"input":"hi","options":{"tool_choice":"any"}}"#,
        r#"{"input":"hi","options":{"tool_choice":{"name":"look"}}}"#,
        r#"{"input":"hi","options":{"tool_choice":{"name":"look"},"tools":["go"]}}"#,
        r#"{"input":"hi","options":{"tool_choice":{"name":""}}}"#,
        r#"{"input":"hi","options":{"tool_choice":{"name":"look","type":"function"}}}"#,
        r#"{"input":"hi","options":{"model_options":{"service_tier":"flex"}}}"#,
        r#"{"input":"hi","options":{"model_options":{"messages":[],"temperature":1}}}"#,
        r#"{"input":"hi","options":{"model_options":{"a":"\u0000"}}}"#,
        r#"{"input":"hi","options":{"model_options":[]}}"#,
        r#"{"input":"hi","options":{"output_schema":{"schema":{"type":"object"},"name":"a b"}}}"#,
        r#"{"input":"hi","options":{"output_schema":{"const":"\u0000"}}}"#,
        r#"{"input":"hi","input":"again"}"#,
        r#"{"input":"hi"} x"#,
        r#"["input",null]"#,
        r#"{"input":"hi","options":[null,null,null,null,null,null,null,null,null,null]}"#,
        r#"{"input":"hi","options":null}"#,
        "",
        "nonsense",
    ];
    let lines: Vec<_> = bodies
        .iter()
        .map(|body| format!("{body} -> {:?}", pointers(body)))
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}
