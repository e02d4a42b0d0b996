use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn what_a_model_wrote_is_passed_on_as_it_was_written() {
    for text in [
        r#"{"b": 1, "a": [1.50, 1e2, -0.0], "c": "é\u00e9\/"}"#,
        "{\n  \"z\": {\"y\": null, \"x\": true}\n}",
        r#"{"n":18446744073709551615,"m":-9223372036854775808}"#,
        "{}",
        "[1]",
    ] {
        let arguments = Arguments::read(text);
        assert_eq!(arguments.text(), text);
        assert_eq!(arguments.fault(), None, "{text}");
        let stored = serde_json::to_string(&arguments).expect("it is JSON");
        assert_eq!(stored, text);
        let read: Arguments = serde_json::from_str(&stored).expect("it is JSON");
        assert_eq!(read.text(), text);
        assert_eq!(read, arguments);
        // Whoever only needs the value gets it.
        let value = serde_json::to_value(&arguments).expect("it is JSON");
        assert_eq!(Arguments::from(value.clone()).value(), &value);
    }
}

#[test]
fn blank_text_is_an_empty_object_and_what_is_no_json_is_a_string() {
    assert_eq!(Arguments::read(" "), json!({}));
    let cut = Arguments::read(r#"{"a":"#);
    assert_eq!(cut, json!("{\"a\":"));
    assert_eq!(cut.fault(), None);
    let stored = serde_json::to_string(&cut).expect("it is JSON");
    let read: Arguments = serde_json::from_str(&stored).expect("it is JSON");
    assert_eq!(read, cut);
}

#[test]
fn whole_numbers_are_integers_for_tools_whatever_their_form() {
    let arguments = Arguments::read(r#"{"lines": 1e2, "from": 1.0}"#);
    assert_eq!(arguments, json!({ "lines": 100, "from": 1 }));
    assert_eq!(arguments.text(), r#"{"lines": 1e2, "from": 1.0}"#);
}

#[test]
fn what_a_value_cannot_say_is_a_fault() {
    for (text, says) in [
        (r#"{"id": 123456789012345678901}"#, "123456789012345678901"),
        (r#"{"id": 0.1000000000000000055511151231257827}"#, "64 bits"),
        (r#"{"id": 1e400}"#, "1e400"),
        (r#"{"id": 0e-99999}"#, "0e-99999"),
        (r#"{"a": 1, "b": {"a": 1}, "a": 2}"#, "\"a\" is given twice"),
        (r#"{"a": "x\u0000"}"#, "U+0000"),
        (r#"{"\u0000": 1}"#, "U+0000"),
        (r#"{"a": "\ud83d"}"#, "surrogate"),
    ] {
        let fault = Arguments::read(text).fault();
        assert!(
            fault.as_ref().is_some_and(|fault| fault.contains(says)),
            "{text}: {fault:?}"
        );
        let stored = serde_json::to_string(&Arguments::read(text)).expect("it is JSON");
        // Databases refuse such JSON; a string of it they take.
        assert_eq!(stored, Value::from(text).to_string());
        let read: Arguments = serde_json::from_str(&stored).expect("it is JSON");
        assert_eq!(read.fault(), fault, "{text}");
    }
    // Arguments that were encoded twice.
    let twice = Arguments::read(r#""{\"a\": 1}""#);
    assert_eq!((twice.fault(), twice.value()), (None, &json!("{\"a\": 1}")));
    for text in [
        r#"{"a": {"b": 1}, "b": [{"a": 1}, {"a": 2}], "c": "a"}"#,
        r#"{"a": "\\u0000", "b": "\"a\": 1"}"#,
        r#"{"a": 0.1, "b": 1.5e-7, "c": 0.0, "d": 2E+3}"#,
        r#"{"a": "\ud83d\ude0b"}"#,
    ] {
        assert_eq!(Arguments::read(text).fault(), None, "{text}");
    }
}

/// JSON texts as a model might write them.
fn texts() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        any::<i64>().prop_map(|n| n.to_string()),
        any::<u64>().prop_map(|n| n.to_string()),
        (any::<i32>(), 0_usize..6).prop_map(|(n, zeros)| format!("{n}.5{}", "0".repeat(zeros))),
        (1_u8..9, 0_u8..20).prop_map(|(n, power)| format!("{n}E+{power}")),
        "[^\u{0}]{0,12}".prop_map(|text| Value::String(text).to_string()),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let spaced = prop_oneof![Just(""), Just(" "), Just("\n  ")];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4)
                .prop_map(|items| format!("[{}]", items.join(", "))),
            (prop::collection::vec(inner, 0..4), spaced).prop_map(|(items, space)| {
                // Names in falling order: a sorted map would turn them round.
                let members = items.iter().enumerate();
                let members =
                    members.map(|(n, item)| format!("{space}\"m{}\":{space}{item}", 9 - n));
                format!("{{{}}}", members.collect::<Vec<_>>().join(","))
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_text_is_stored_and_passed_on_to_the_byte(inner in texts()) {
        let text = format!("{{\"value\": {inner}}}");
        let arguments = Arguments::read(&text);
        prop_assert_eq!(arguments.fault(), None);
        let stored = serde_json::to_string(&arguments).expect("it is JSON");
        prop_assert_eq!(&stored, &text);
        let read: Arguments = serde_json::from_str(&stored).expect("it is JSON");
        prop_assert_eq!(read.text(), &text[..]);
        // The members stay in order in the value, too.
        let again = Arguments::from(read.value().clone());
        prop_assert_eq!(again.text(), arguments.value().to_string());
    }

    #[test]
    fn an_integer_that_64_bits_cannot_hold_is_a_fault(digits in "[1-9][0-9]{20,40}") {
        // A double may happen to equal it, if it ends in zeros.
        prop_assume!(!digits.ends_with("0000"));
        let text = format!("{{\"n\":{digits}}}");
        prop_assert!(Arguments::read(&text).fault().is_some());
    }
}
