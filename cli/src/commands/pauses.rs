//! `mainspring pause`, `mainspring resume` and `mainspring pauses`

use serde_json::json;

use super::lists;
use crate::args::{Format, PageArgs, PauseArgs, PausedArgs, PausedKind};
use crate::client::{Client, Request, segment};
use crate::failure::Failure;
use crate::output::{self, Column};

const COLUMNS: [Column; 5] = [
    ("KIND", "kind"),
    ("NAME", "name"),
    ("TENANT", "tenant"),
    ("SINCE", "created_at"),
    ("REASON", "reason"),
];

pub(crate) async fn pause(args: &PauseArgs, format: Format, client: Client) -> Result<(), Failure> {
    let body = match &args.reason {
        Some(reason) => json!({ "reason": reason }),
        None => json!({}),
    };
    let request = Request::post(path(&args.paused, "pause")).body(body);
    output::object(format, &client.ask(request).await?)
}

pub(crate) async fn resume(args: &PausedArgs, client: Client) -> Result<(), Failure> {
    let request = Request::post(path(args, "resume")).body(json!({}));
    client.ask(request).await.map(drop)
}

pub(crate) async fn list(page: &PageArgs, format: Format, client: Client) -> Result<(), Failure> {
    let rows = lists::rows(&client, &Request::get("/v1/pauses"), page.limit).await?;
    output::list(format, &COLUMNS, &rows)
}

fn path(of: &PausedArgs, verb: &str) -> String {
    let kinds = match of.kind {
        PausedKind::Tenant => "tenants",
        PausedKind::Agent => "agents",
        PausedKind::Provider => "providers",
        PausedKind::Tool => "tools",
        PausedKind::Pool => "pools",
    };
    format!("/v1/{kinds}/{}/{verb}", segment(&of.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_is_one_segment_of_the_path() {
        let of = |kind, name: &str| PausedArgs {
            kind,
            name: name.to_owned(),
        };
        let tool = path(&of(PausedKind::Tool, "a/b?c d"), "pause");
        assert_eq!(tool, "/v1/tools/a%2Fb%3Fc%20d/pause");
        let pool = path(&of(PausedKind::Pool, "gpu-1"), "resume");
        assert_eq!(pool, "/v1/pools/gpu-1/resume");
    }
}
