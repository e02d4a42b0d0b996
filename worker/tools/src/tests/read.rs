use serde_json::json;

use super::bed::{Bed, files};
use crate::builtin::{Limits, Settings};

#[tokio::test]
async fn text_of_any_language_is_read() {
    let bed = Bed::files().await;
    let text = "第一行：這個檔案沒有任何英文字母。\n第二行。\n";
    bed.put("中文.txt", text.repeat(400));
    let told = bed
        .call("read_file", json!({"path": "中文.txt", "limit": 2}))
        .await;
    assert_eq!(
        told,
        "中文.txt: lines 1-2; continue with offset=3\n     1|第一行：這個檔案沒有任何英文字母。\n     2|第二行。\n"
    );
    let edit =
        json!({"path": "中文.txt", "old_text": "第一行", "new_text": "首行", "replace_all": true});
    bed.call("edit_file", edit).await;
    assert_eq!(
        bed.get("中文.txt"),
        text.replace("第一行", "首行").repeat(400)
    );
    let found = bed
        .call("grep", json!({"pattern": "首.：", "max_results": 1}))
        .await;
    assert!(found.starts_with("中文.txt:1:首行：這個"), "{found}");
}

#[tokio::test]
async fn what_is_not_text_is_refused_or_marked() {
    let bed = Bed::files().await;
    bed.put("image", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
    let told = bed.refused("read_file", json!({"path": "image"})).await;
    assert_eq!(told, "image is not a text file (16 bytes)");
    bed.put("latin", b"caf\xe9\nna\xefve\n");
    let told = bed.call("read_file", json!({"path": "latin"})).await;
    assert!(
        told.starts_with("latin: lines 1-2 of 2 (not UTF-8: 2 characters replaced)\n"),
        "{told}"
    );
    let edit = json!({"path": "latin", "old_text": "na", "new_text": "x"});
    let told = bed.refused("edit_file", edit).await;
    assert_eq!(told, "latin is not UTF-8: a change here would damage it");
}

#[tokio::test]
async fn a_long_file_is_read_page_by_page() {
    let bed = Bed::files().await;
    let line = "x".repeat(90);
    bed.put("long", format!("{line}\n").repeat(3_000));
    let (mut offset, mut lines) = (1, 0);
    loop {
        let told = bed
            .call("read_file", json!({"path": "long", "offset": offset}))
            .await;
        assert!(told.chars().count() < mainspring_worker::tool::OUTPUT_CHARS_DEFAULT);
        let (head, body) = told.split_once('\n').expect("has a head");
        lines += body.lines().count();
        let Some((_, next)) = head.split_once("offset=") else {
            break;
        };
        offset = next.parse().expect("is a number");
        assert_eq!(offset, lines + 1);
    }
    assert_eq!(lines, 3_000);
    let told = bed
        .refused("read_file", json!({"path": "long", "offset": 3_001}))
        .await;
    assert_eq!(told, "long has only 3000 lines");
}

#[tokio::test]
async fn a_large_file_is_read_only_in_part_and_not_changed() {
    let bed = Bed::new(|root| Settings {
        limits: Limits {
            file_bytes_max: 1_000,
            ..Limits::default()
        },
        ..files(root)
    })
    .await;
    bed.put("large", "0123456789\n".repeat(1_000));
    let told = bed.refused("read_file", json!({"path": "large"})).await;
    assert!(
        told.contains("11000 bytes") && told.contains("limit"),
        "{told}"
    );
    let told = bed
        .call(
            "read_file",
            json!({"path": "large", "offset": 999, "limit": 9}),
        )
        .await;
    assert_eq!(
        told,
        "large: lines 999-1000 of 1000\n   999|0123456789\n  1000|0123456789\n"
    );
    for (tool, arguments) in [
        ("write_file", json!({"path": "large", "content": "x"})),
        (
            "edit_file",
            json!({"path": "large", "old_text": "0", "new_text": "x"}),
        ),
        (
            "write_file",
            json!({"path": "new", "content": "x".repeat(1_001)}),
        ),
    ] {
        let told = bed.refused(tool, arguments).await;
        assert!(told.contains("1000"), "{told}");
    }
    assert!(!bed.home().join("new").exists());
    bed.put("large_binary", vec![0; 2_000]);
    let read = json!({"path": "large_binary", "limit": 1});
    let told = bed.refused("read_file", read).await;
    assert_eq!(told, "large_binary is not a text file (2000 bytes)");
}

#[tokio::test]
async fn directories_are_listed_with_directories_first() {
    let bed = Bed::files().await;
    assert_eq!(bed.call("list_dir", json!({})).await, ". is empty");
    bed.put("b.txt", "12345");
    bed.put("a.txt", "");
    bed.put("z/inner", "");
    bed.put(".hidden", "1");
    std::os::unix::fs::symlink("b.txt", bed.home().join("link")).expect("links");
    let expected = "z/\n.hidden  1\na.txt  0\nb.txt  5\nlink@\n";
    assert_eq!(bed.call("list_dir", json!({})).await, expected);
    // Reading a directory lists it.
    assert_eq!(
        bed.call("read_file", json!({"path": "./z/.."})).await,
        expected
    );
    for n in 0..250 {
        bed.put(&format!("many/{n:03}"), "");
    }
    let told = bed.call("list_dir", json!({"path": "many"})).await;
    assert!(
        told.contains("199  0\n[… 50 more entries]") && !told.contains("200  0"),
        "{told}"
    );
}

#[tokio::test]
async fn what_is_missing_is_said_without_naming_what_is_outside() {
    let bed = Bed::files().await;
    bed.put("file", "x");
    for (path, expected) in [
        ("none", "none does not exist"),
        ("none/deeper", "none/deeper does not exist"),
        (
            "file/deeper",
            "file/deeper is not a directory, or leads through a file",
        ),
    ] {
        assert_eq!(
            bed.refused("read_file", json!({"path": path})).await,
            expected
        );
    }
    assert_eq!(
        bed.refused("list_dir", json!({"path": "file"})).await,
        "file is not a directory, or leads through a file"
    );
}
