//! Every case of the suite, once.

/// Calls a macro with the list of cases, by module.
#[macro_export]
macro_rules! store_cases {
    ($($callback:tt)*) => {
        $($callback)*! {
            accept {
                an_accepted_send_is_stored_as_queued,
                only_the_send_that_makes_a_session_ready_rings,
                sends_of_one_call_keep_their_order,
                a_send_may_create_its_session,
                a_delayed_send_has_no_place_and_rings_nobody,
                the_alarm_is_the_earlier_of_delay_and_deadline,
                an_unknown_session_is_refused,
                reject_is_refused_while_any_send_is_open,
                reject_sees_the_sends_before_it_in_the_same_call,
                a_full_session_refuses_until_a_send_starts,
                a_refused_item_does_not_harm_its_neighbours,
                a_send_behind_a_running_one_rings_nobody,
                a_send_behind_a_waiting_one_makes_nothing_ready,
                the_ring_has_the_priority_of_the_send_that_rings,
            }
            alarms {
                nothing_due_tells_when_to_look_again,
                a_delayed_send_gets_its_place_when_due,
                delayed_sends_get_their_places_in_the_order_they_are_due,
                a_due_send_behind_a_running_one_rings_nobody,
                a_due_send_behind_a_waiting_one_makes_nothing_ready,
                a_parked_retry_becomes_ready_when_due,
                a_queued_send_fails_at_its_deadline,
                a_deadline_before_the_delay_ends_the_send,
                a_waiting_send_fails_at_its_deadline,
                a_released_send_fails_at_its_deadline,
                a_running_send_is_left_to_its_worker,
                the_oldest_alarms_are_served_first,
                a_recovery_is_resumed_once_someone_asks,
                nothing_else_is_resumed,
            }
            audit {
                an_empty_store_is_empty_and_sound,
                every_ordinary_step_leaves_the_store_sound,
                a_round_that_nobody_paid_for_is_reported,
                a_call_without_a_result_is_reported_once_the_next_round_came,
                a_running_send_that_nobody_takes_over_is_reported,
                a_dump_is_in_order,
            }
            boots {
                a_registered_boot_is_listed,
                a_renewal_extends_the_lease,
                a_late_boot_that_nobody_missed_goes_on,
                an_unknown_or_stopped_boot_is_dead,
                a_renewal_tells_of_its_own_sessions_signals_only,
                ended_boots_are_listed_for_ten_minutes,
                retention_removes_ended_boots_that_nothing_names,
            }
            cancel {
                a_queued_send_ends_at_once,
                a_queued_send_leaves_the_others_ready,
                a_delayed_send_ends_without_its_place,
                with_only_delayed_sends_left_nothing_is_ready,
                a_queued_send_behind_a_waiting_one_leaves_it_waiting,
                a_waiting_send_ends_under_a_grant,
                an_input_that_was_said_is_not_said_again,
                the_end_of_a_waiting_send_frees_those_behind_it,
                a_running_send_is_told,
                a_told_send_that_was_released_ends_at_the_next_cancel,
                a_released_send_ends_at_once_and_rings_for_the_next,
                the_signal_outlives_the_owner,
                a_final_send_stays_as_it_is,
                an_unknown_send_is_not_found,
                cancels_of_one_call_have_each_their_outcome,
            }
            claim {
                a_claim_starts_the_head,
                what_a_live_boot_holds_is_busy,
                a_session_without_work_is_idle,
                an_expired_boot_loses_its_session_and_is_declared_dead,
                a_lease_holds_to_its_last_millisecond,
                a_stopped_boot_loses_its_session_at_once,
                each_takeover_counts_until_a_round_is_durable,
                a_released_session_is_handed_over_without_a_crash,
                a_stale_owner_changes_nothing,
                the_token_is_the_fence_not_the_boot,
                a_parked_send_goes_on_with_the_reason_of_its_wait,
                a_send_keeps_the_agent_that_it_started_with,
                claims_of_one_call_have_each_their_outcome,
            }
            complete {
                a_completed_send_is_final,
                a_final_step_says_what_it_wrote,
                a_failed_send_keeps_its_error,
                the_next_send_goes_on_under_the_same_lease,
                a_worker_that_leaves_gives_the_rest_to_others,
                a_raised_cancel_wins_over_the_result,
                a_delayed_send_that_is_left_makes_nothing_ready,
                completions_of_one_call_have_each_their_outcome,
                a_send_is_completed_once,
            }
            idempotency {
                a_repeat_names_the_first_send_and_stores_nothing,
                another_body_under_the_key_is_a_mismatch,
                a_key_holds_within_its_own_call,
                a_refused_request_leaves_its_key_free,
                keys_of_other_tenants_and_routes_are_other_keys,
                a_repeat_is_answered_even_when_it_would_be_refused_now,
                a_repeat_does_not_make_its_session_busy,
                a_repeated_create_makes_no_second_session,
                creates_of_one_call_see_each_others_keys,
                retention_frees_old_keys_only,
            }
            park {
                a_parked_send_waits_and_holds_nothing,
                a_parked_send_holds_back_those_behind_it,
                the_alarm_is_the_earlier_of_wait_and_deadline,
                what_was_paid_for_before_the_wait_is_stored,
                a_raised_cancel_ends_the_send_instead,
                a_cancelled_park_rings_for_the_next_send,
                a_wait_forgets_earlier_crashes,
                a_released_send_stays_ready_and_running,
            }
            reads {
                the_store_tells_the_time_and_what_it_is,
                sends_are_found_by_id_in_the_asked_order,
                sessions_are_listed_newest_first_by_page,
                sessions_are_filtered,
                every_status_of_a_session_can_be_asked_for,
                sends_are_listed_and_filtered_newest_first,
                a_transcript_is_read_piece_by_piece,
                steps_are_read_piece_by_piece,
                tenants_do_not_see_each_other,
                stats_count_what_waits_and_runs,
            }
            ready {
                ready_sessions_are_found_oldest_first,
                a_page_goes_on_where_the_last_one_ended,
                only_the_asked_pool_is_found,
                sessions_that_were_just_rung_for_are_left,
                held_waiting_and_idle_sessions_are_not_ready,
                sessions_of_dead_and_leaving_workers_are_found,
            }
            rounds {
                a_round_is_numbered_and_reads_back,
                a_round_is_one_step,
                a_round_sets_the_sums_of_its_send,
                calls_and_usage_have_their_rows,
                unusual_content_reads_back_as_it_was,
                rounds_of_one_call_have_each_their_outcome,
                a_round_tells_of_queued_sends_and_signals,
                messages_carry_the_epoch_of_their_grant,
            }
            sessions {
                a_created_session_reads_back,
                an_unknown_session_is_none,
                a_new_agent_is_a_new_version_and_moves_the_pool,
                metadata_is_replaced_whole_and_leaves_the_agent,
                a_closed_session_takes_no_sends_until_it_is_reopened,
                closing_leaves_accepted_work_to_be_done,
                a_session_says_where_it_stands,
                deleting_ends_every_open_send_under_a_grant,
                deleting_takes_the_lease_away,
                a_deleted_session_is_gone_but_for_its_sends,
                deleting_an_idle_session_ends_nothing,
                deleting_a_waiting_send_leaves_no_message,
                a_change_shows_the_session_at_its_own_time,
            }
            window {
                without_a_cache_the_whole_window_comes,
                the_agent_bounds_the_window,
                a_bound_beyond_the_transcript_is_the_whole_of_it,
                a_window_never_begins_between_a_call_and_its_result,
                a_full_cache_gets_nothing,
                a_cache_that_reaches_back_gets_what_is_new,
                a_cache_that_begins_too_late_gets_the_whole_window,
                a_cache_that_ends_before_the_window_gets_the_whole_window,
                a_cache_of_a_bounded_window_gets_what_is_new,
            }
        }
    };
}
