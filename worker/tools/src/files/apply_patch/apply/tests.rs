use super::super::parse::hunks;
use super::*;

fn patch(text: &str, patch: &str) -> Result<String, String> {
    let hunks = hunks(patch).expect("is a patch");
    apply(text, &hunks).map(|applied| applied.text)
}

#[test]
fn a_stated_line_decides_though_the_context_recurs() {
    let text = "start\n  x\nend\nstart\n  x\nend\nstart\n  x\nend\n";
    let body = " start\n-  x\n+  y\n end\n";
    for (line, expected) in [
        (1, "start\n  y\nend\nstart\n  x\nend\nstart\n  x\nend\n"),
        (4, "start\n  x\nend\nstart\n  y\nend\nstart\n  x\nend\n"),
        (7, "start\n  x\nend\nstart\n  x\nend\nstart\n  y\nend\n"),
    ] {
        let stated = format!("@@ -{line},3 +{line},3 @@\n{body}");
        assert_eq!(patch(text, &stated), Ok(expected.to_owned()));
    }
    // With a line number that does not match, or without one, any of the places would do.
    for head in ["@@ -2,3 +2,3 @@", "@@"] {
        let fault = patch(text, &format!("{head}\n{body}")).expect_err("is ambiguous");
        assert!(fault.contains("fits 3 places, at lines 1, 4, 7"), "{fault}");
    }
}

#[test]
fn a_hunk_moves_to_where_it_fits() {
    let text = "new\nnew\na\nb\nc\nd\na\nb\n";
    let said = "@@ -1,2 +1,2 @@\n a\n-b\n+B\n c\n";
    assert_eq!(
        patch(text, said),
        Ok("new\nnew\na\nB\nc\nd\na\nb\n".to_owned())
    );
    // The next hunk shifts by the same amount, although it would also fit elsewhere.
    let said = "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n@@ -6,1 +6,1 @@\n-d\n+D\n";
    assert_eq!(
        patch("new\nnew\na\nb\nc\nx\nd\nd\nx\nd\n", said),
        Ok("new\nnew\na\nB\nc\nx\nd\nD\nx\nd\n".to_owned())
    );
    // Unless it also fits at its stated line: then either match may be a coincidence.
    let fault = patch("new\nnew\na\nb\nc\nd\nx\nd\n", said).expect_err("is ambiguous");
    assert!(fault.contains("fits 2 places, at lines 6, 8"), "{fault}");
}

#[test]
fn an_anchor_says_behind_which_line() {
    let text = "fn a() {\n    1\n}\nfn b() {\n    1\n}\n";
    assert_eq!(
        patch(text, "@@ fn b() {\n-    1\n+    2\n"),
        Ok("fn a() {\n    1\n}\nfn b() {\n    2\n}\n".to_owned())
    );
    assert_eq!(
        patch(text, "@@ fn a\n+    // first\n"),
        Ok("fn a() {\n    // first\n    1\n}\nfn b() {\n    1\n}\n".to_owned())
    );
    let fault = patch(text, "@@ fn c\n-    1\n").expect_err("is nowhere");
    assert!(fault.contains("which no line after"), "{fault}");
    let fault = patch(text, "@@ fn\n-    1\n").expect_err("is ambiguous");
    assert!(fault.contains("2 places, at lines 2, 5"), "{fault}");
}

#[test]
fn spaces_at_line_ends_do_not_matter_and_stay_as_they_are() {
    assert_eq!(
        patch("a  \nb\t\nc\n", "@@\n a\n-b\n+B\n c   \n"),
        Ok("a  \nB\nc\n".to_owned())
    );
}

#[test]
fn line_ends_of_the_file_are_kept() {
    assert_eq!(
        patch("a\r\nb\r\nc\r\n", "@@ -2 +2,2 @@\n-b\n+x\n+y\n"),
        Ok("a\r\nx\r\ny\r\nc\r\n".to_owned())
    );
}

#[test]
fn the_end_of_the_file_is_as_it_was_or_as_the_patch_says() {
    let none = "\\ No newline at end of file";
    for (text, body, expected) in [
        ("a\nb", "-b\n+c\n".to_owned(), "a\nc"),
        ("a\nb\n", "-b\n+c\n".to_owned(), "a\nc\n"),
        ("a\nb", format!("-b\n{none}\n+c\n"), "a\nc\n"),
        ("a\nb\n", format!("-b\n+c\n{none}\n"), "a\nc"),
        ("a\nb", format!("-b\n{none}\n+c\n{none}\n"), "a\nc"),
        ("a\nb", " b\n+c\n".to_owned(), "a\nb\nc"),
        ("a\nb", "-b\n".to_owned(), "a"),
        ("a\nb\nc", "-b\n".to_owned(), "a\nc"),
    ] {
        let said = format!("@@ -2 +2 @@\n{body}");
        assert_eq!(patch(text, &said).as_deref(), Ok(expected), "{body:?}");
    }
}

#[test]
fn lines_are_added_where_no_others_are_named() {
    assert_eq!(
        patch("", "@@ -0,0 +1,2 @@\n+a\n+b\n"),
        Ok("a\nb\n".to_owned())
    );
    assert_eq!(
        patch("a\nb\n", "@@ -1,0 +2 @@\n+x\n"),
        Ok("a\nx\nb\n".to_owned())
    );
    assert_eq!(
        patch("a\nb\n", "@@ -2,0 +3 @@\n+x\n"),
        Ok("a\nb\nx\n".to_owned())
    );
    assert!(patch("a\nb\n", "@@ -9,0 +9 @@\n+x\n").is_err());
    assert!(patch("a\nb\n", "@@\n+x\n").is_err());
}

#[test]
fn all_hunks_apply_or_none() {
    let fault = patch("a\nb\n", "@@ -1 +1 @@\n-a\n+A\n@@ -2 +2 @@\n-z\n+Z\n");
    let fault = fault.expect_err("the second does not fit");
    assert!(
        fault.contains("hunk 2") && fault.contains("there is \"b\" instead of \"z\""),
        "{fault}"
    );
}

#[test]
fn hunks_do_not_go_back() {
    let fault = patch("a\nb\n", "@@ -2 +2 @@\n-b\n+B\n@@ -1 +1 @@\n-a\n+A\n");
    assert!(
        fault
            .expect_err("is out of order")
            .contains("behind line 2")
    );
}

#[test]
fn a_patch_that_fits_nearly_everywhere_is_given_up() {
    let lines = "a\n".repeat(200_000);
    let context = " a\n".repeat(50_000);
    let text = format!("{lines}c\n");
    for head in ["@@", "@@ a", "@@ -9,50000 +9,50000 @@"] {
        let fault = patch(&text, &format!("{head}\n{context}-b\n+d\n")).expect_err("fits nowhere");
        assert!(
            fault.contains("takes too long to locate"),
            "{head}: {fault}"
        );
    }
    let mut many = String::new();
    for _ in 0..2_000 {
        many.push_str("@@ c\n+d\n");
    }
    let fault = patch(&text, &many).expect_err("is located again and again");
    assert!(!fault.is_empty());
}
