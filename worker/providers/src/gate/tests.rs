use mainspring_runtime::SystemClock;

use super::*;
use crate::settings::Kind;

/// A model that fails a given number of times.
#[derive(Debug)]
struct Flaky {
    failures: Mutex<u32>,
    asked: Mutex<u32>,
    error: Error,
}

#[async_trait]
impl Model for Flaky {
    async fn complete(
        &self,
        request: &Request,
        _: &mut (dyn for<'c> FnMut(Chunk<'c>) + Send),
    ) -> Result<Reply, Error> {
        *self.asked.lock().expect("nobody panics") += 1;
        let mut failures = self.failures.lock().expect("nobody panics");
        if *failures > 0 {
            *failures -= 1;
            return Err(self.error.clone());
        }
        Ok(Reply {
            content: Vec::new(),
            tool_calls: Vec::new(),
            finish: mainspring_worker::llm::Finish::Stop,
            usage: mainspring_shared::usage::Usage::default(),
            model: request.model.clone(),
        })
    }
}

fn guarded(failures: u32, error: Error, limits: Limits) -> Guarded<Flaky> {
    let settings = ProviderSettings {
        limits,
        ..ProviderSettings::new("p", Kind::Demo)
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    Guarded {
        model: Flaky {
            failures: Mutex::new(failures),
            asked: Mutex::default(),
            error,
        },
        gate: Arc::new(Gate::new(&settings, Share::default(), clock)),
        settings,
    }
}

fn asked(model: &Guarded<Flaky>) -> u32 {
    *model.model.asked.lock().expect("nobody panics")
}

async fn ask(model: &Guarded<Flaky>) -> Result<Reply, Error> {
    model
        .complete(&crate::answer::tests::request(), &mut |_| {})
        .await
}

const LIMITS: Limits = Limits {
    requests_per_minute: None,
    tokens_per_minute: None,
    breaker_failures: 2,
    breaker_pause: Duration::from_mins(1),
    wait_max: Duration::ZERO,
};

#[tokio::test]
async fn a_provider_that_is_down_is_not_asked_and_the_call_is_held() {
    let model = guarded(2, Error::unavailable("down"), LIMITS);
    for _ in 0..2 {
        assert_eq!(ask(&model).await, Err(Error::unavailable("down")));
    }
    let held = ask(&model).await.expect_err("it is held");
    let Error::Held {
        why: Hold::Outage,
        wait,
    } = held
    else {
        panic!("{held:?}");
    };
    assert!(wait > Duration::from_secs(50), "{wait:?}");
    let foreseen = model.held(&crate::answer::tests::request());
    assert!(
        matches!(foreseen, Some((Hold::Outage, left)) if left <= wait),
        "{foreseen:?}"
    );
    assert_eq!(asked(&model), 2);
}

#[tokio::test]
async fn a_short_pause_is_waited_out_and_a_probe_brings_the_provider_back() {
    let limits = Limits {
        breaker_pause: Duration::from_millis(20),
        wait_max: Duration::from_secs(5),
        ..LIMITS
    };
    let model = guarded(2, Error::unavailable("down"), limits);
    for _ in 0..2 {
        assert!(ask(&model).await.is_err());
    }
    assert!(ask(&model).await.is_ok());
    assert!(ask(&model).await.is_ok());
    assert_eq!(asked(&model), 4);
}

#[tokio::test]
async fn a_provider_that_refuses_is_not_down_and_its_wait_holds_for_everyone() {
    let wait = Duration::from_secs(30);
    let limited = Error::RateLimited {
        message: String::new(),
        retry_after: Some(wait),
    };
    let model = guarded(1, limited, LIMITS);
    let foreseen = || model.held(&crate::answer::tests::request());
    assert_eq!(foreseen(), None);
    assert!(ask(&model).await.is_err());
    assert!(
        matches!(foreseen(), Some((Hold::Rate, left)) if left <= wait),
        "{:?}",
        foreseen()
    );
    let held = ask(&model).await;
    assert!(
        matches!(held, Err(Error::Held { why: Hold::Rate, wait: left }) if left <= wait),
        "{held:?}"
    );
    let invalid = Error::InvalidRequest {
        message: String::new(),
    };
    let model = guarded(10, invalid.clone(), LIMITS);
    for _ in 0..10 {
        assert_eq!(ask(&model).await, Err(invalid.clone()));
    }
}

#[tokio::test]
async fn requests_beyond_the_rate_are_delayed() {
    let limits = Limits {
        requests_per_minute: std::num::NonZeroU32::new(600),
        wait_max: Duration::from_secs(5),
        ..LIMITS
    };
    let model = guarded(0, Error::unavailable("down"), limits);
    let begun = model.gate.clock.monotonic();
    for _ in 0..602 {
        assert!(ask(&model).await.is_ok());
    }
    let took = model.gate.clock.monotonic().saturating_sub(begun);
    assert!(took >= Duration::from_millis(100), "{took:?}");
}

#[tokio::test]
async fn a_probe_that_is_dropped_does_not_close_the_way_for_others() {
    let limits = Limits {
        breaker_pause: Duration::from_millis(1),
        wait_max: Duration::from_secs(5),
        ..LIMITS
    };
    let model = guarded(2, Error::unavailable("down"), limits);
    for _ in 0..2 {
        assert!(ask(&model).await.is_err());
    }
    model.gate.clock.sleep(Duration::from_millis(5)).await;
    drop(model.gate.admit("model", 1).await.expect("it probes"));
    assert!(ask(&model).await.is_ok());
}
