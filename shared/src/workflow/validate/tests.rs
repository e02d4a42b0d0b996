use super::*;
use serde_json::json;
#[test]
fn ok() {
    let v = json!({"name":"a","root":{"type":"agent","id":"x","spec":{"name":"n","system_prompt":"s"}}});
    let s = validate(&v).unwrap();
    assert_eq!(validate(&s.to_value()), Ok(s));
}
