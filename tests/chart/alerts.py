"""Cases for `promtool test rules`: for each alert, series that make it fire, and others beside them that must not."""

# Counters grow by the second number a minute, from the first; gauges stay. Some begin with their first event (`_`: not yet).
FIRES = {
    "MainspringLoopFailing": ({'mainspring_loop_failures_total{namespace="a",loop="sweep"}': "0+30x30"}, {"namespace": "a", "loop": "sweep"}),
    "MainspringServerErrors": (
        {'mainspring_http_requests_total{namespace="a",status="500"}': "0+20x30", 'mainspring_http_requests_total{namespace="a",status="200"}': "0+980x30"},
        {"namespace": "a"},
    ),
    "MainspringOverloaded": ({'mainspring_http_overloaded_total{namespace="a",kind="bytes"}': "0+30x30"}, {"namespace": "a", "kind": "bytes"}),
    "MainspringSlowAccepts": (
        {
            'mainspring_http_request_seconds_bucket{namespace="a",route="/v1/sends:batch",le="2.5"}': "0+50x30",
            'mainspring_http_request_seconds_bucket{namespace="a",route="/v1/sends:batch",le="5"}': "0+60x30",
            'mainspring_http_request_seconds_bucket{namespace="a",route="/v1/sends:batch",le="+Inf"}': "0+60x30",
        },
        {"namespace": "a"},
    ),
    "MainspringSessionsSwept": ({'mainspring_sessions_swept_total{namespace="a"}': "0+120x40"}, {"namespace": "a"}),
    "MainspringPushesDropped": ({'mainspring_rings_dropped_total{namespace="a"}': "0+30x30"}, {"namespace": "a"}),
    "MainspringRowsUnreadable": ({'mainspring_rows_unreadable_total{namespace="a",table="sends"}': "_x20 1x20"}, {"namespace": "a", "table": "sends"}),
    "MainspringInvariantViolated": (
        {'mainspring_audit_violations_total{namespace="a",invariant="send.shape"}': "0x20 1x20"},
        {"namespace": "a", "invariant": "send.shape"},
    ),
    "MainspringRunsAside": ({'mainspring_runs_aside_total{namespace="a"}': "0+1x40"}, {"namespace": "a"}),
    "MainspringDeletionStuck": ({'mainspring_deleted_waiting_seconds{namespace="a"}': "10801x30"}, {"namespace": "a"}),
    "MainspringTimersLate": (
        {
            'mainspring_timer_lateness_seconds_bucket{namespace="a",le="30"}': "0+50x40",
            'mainspring_timer_lateness_seconds_bucket{namespace="a",le="120"}': "0+60x40",
            'mainspring_timer_lateness_seconds_bucket{namespace="a",le="+Inf"}': "0+60x40",
        },
        {"namespace": "a"},
    ),
    "MainspringModelCallsFailing": (
        {'mainspring_worker_model_calls_failed_total{namespace="a",code="llm.timeout"}': "0+30x40", 'mainspring_worker_model_calls_total{namespace="a"}': "0+100x40"},
        {"namespace": "a"},
    ),
    "MainspringProviderOpen": (
        {'mainspring_provider_circuit{namespace="a",provider="x",pod="1"}': "2x30", 'mainspring_provider_circuit{namespace="a",provider="x",pod="2"}': "0x30"},
        {"namespace": "a", "provider": "x"},
    ),
    "MainspringSendsFailing": (
        {'mainspring_worker_sends_ended_total{namespace="a",status="failed"}': "0+20x40", 'mainspring_worker_sends_ended_total{namespace="a",status="completed"}': "0+100x40"},
        {"namespace": "a"},
    ),
    "MainspringQueueNotServed": (
        {
            'mainspring_queue_oldest_ready_age_seconds{namespace="a",pool="gpu",pod="1"}': "121x30",
            'mainspring_queue_oldest_ready_age_seconds{namespace="a",pool="default",pod="1"}': "3x30",
        },
        {"namespace": "a", "pool": "gpu"},
    ),
    "MainspringWebhooksLate": ({'mainspring_webhook_oldest_due_seconds{namespace="a"}': "601x30"}, {"namespace": "a"}),
    "MainspringBlobsCorrupt": ({'mainspring_worker_blobs_corrupt_total{namespace="a"}': "_x20 1x20"}, {"namespace": "a"}),
}

# An installation where all is well, and one that has just begun, with counters that do not exist yet.
WELL = {
    'mainspring_http_requests_total{namespace="a",status="500"}': "0+1x40",
    'mainspring_http_requests_total{namespace="a",status="200"}': "0+999x40",
    'mainspring_worker_model_calls_total{namespace="a"}': "0+100x40",
    'mainspring_worker_model_calls_failed_total{namespace="a",code="llm.timeout"}': "0+5x40",
    'mainspring_worker_sends_ended_total{namespace="a",status="completed"}': "0+100x40",
    'mainspring_sessions_swept_total{namespace="a"}': "0+3x40",
    'mainspring_provider_circuit{namespace="a",provider="x"}': "1x40",
    'mainspring_deleted_waiting_seconds{namespace="a"}': "60x40",
    'mainspring_queue_oldest_ready_age_seconds{namespace="a",pool="default"}': "60x40",
    'mainspring_webhook_oldest_due_seconds{namespace="a"}': "30x40",
    'mainspring_rows_unreadable_total{namespace="a",table="sends"}': "3x40",
    'mainspring_audit_violations_total{namespace="a",invariant="send.shape"}': "0x40",
}
BEGUN = {'mainspring_http_requests_total{namespace="a",status="200"}': "0x40"}


def cases(rules):
    """The file that promtool reads, for the rules of a file."""
    alerts = {rule["alert"]: rule for group in rules["groups"] for rule in group["rules"]}
    assert alerts.keys() == FIRES.keys(), alerts.keys() ^ FIRES.keys()

    def series(values):
        return [{"series": name, "values": text} for name, text in values.items()]

    tests = [
        {"interval": "1m", "input_series": series(values), "alert_rule_test": [{"eval_time": "40m", "alertname": name, "exp_alerts": []} for name in alerts]}
        for values in (WELL, BEGUN)
    ]
    for name, (values, labels) in FIRES.items():
        fired = {"exp_labels": {**labels, **alerts[name]["labels"]}}
        tests.append({"interval": "1m", "input_series": series(values), "alert_rule_test": [{"eval_time": "29m", "alertname": name, "exp_alerts": [fired]}]})
    return tests
