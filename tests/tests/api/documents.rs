//! The documentation, as the scheduler serves it.

use crate::access::locked;
use crate::world::World;

#[tokio::test]
async fn the_documentation_is_served_to_everyone_without_scripts_and_in_no_frame() {
    let world = World::new().await;
    let api = locked(&world).await;
    for (path, text) in [
        ("/docs/", "<title>Mainspring"),
        ("/docs/API", "id=\"sends\""),
        ("/docs/guides/production", "href=\"../OPERATIONS\""),
    ] {
        let answer = api.get(path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.text.contains(text), "{path} has no {text}");
        assert!(!answer.text.contains("<script"), "{path}");
        let kind = answer.header("content-type");
        assert_eq!(kind, Some("text/html; charset=utf-8"), "{path}");
        let policy = answer.header("content-security-policy").expect("a policy");
        assert!(
            policy.starts_with("default-src 'none'; style-src 'self';"),
            "{policy}"
        );
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    }
}

#[tokio::test]
async fn what_is_no_page_is_not_found_and_the_folder_is() {
    let world = World::new().await;
    let api = locked(&world).await;
    let moved = api.get("/docs").await;
    assert_eq!(
        (moved.status, moved.header("location")),
        (308, Some("docs/"))
    );
    for path in [
        "/docs/NONE",
        "/docs/guides",
        "/docs/API.md",
        "/docs/..%2f..%2fCargo.toml",
        "/docs/%ff",
    ] {
        api.get(path).await.problem(404, "request.not_found");
    }
    api.get("/docs/?p=1").await.problem(400, "request.invalid");
}

#[tokio::test]
async fn a_text_is_found_in_all_pages_and_shown_as_it_is() {
    let world = World::new().await;
    let api = locked(&world).await;
    let found = api.get("/docs/?q=Idempotency-Key").await;
    assert_eq!(found.status, 200);
    assert!(found.text.contains("<a href=\"API#"), "{}", found.text);
    let hostile = api
        .get("/docs/?q=%22%3E%3Cscript%3Ealert(1)%3C/script%3E")
        .await;
    assert_eq!(hostile.status, 200);
    assert!(!hostile.text.contains("<script"), "{}", hostile.text);
    let long = "x".repeat(201);
    let refused = api.get(&format!("/docs/?q={long}")).await;
    refused.problem(400, "request.invalid");
}
