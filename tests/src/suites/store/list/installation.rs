//! The list of every case about runs, timers, tenants and everything else outside sessions.

/// Calls a macro with the list of cases about everything outside sessions, by module.
#[macro_export]
macro_rules! installation_cases {
    ($($callback:tt)*) => {
        $($callback)*! {
            accounts {
                erasures_are_listed_without_what_they_erased,
                vectors_are_paid_for_once_by_whoever_there_is,
                vectors_of_long_ago_are_forgotten,
                a_changed_entry_keeps_where_it_came_from,
            }
            agent_seats {
                an_agents_sends_wait_and_keep_no_other_agents_waiting,
                an_agents_seats_are_exact_however_many_claim_at_once,
                an_agents_limit_and_its_tenants_hold_together,
                an_agents_limit_counts_what_runs_when_it_is_set,
                an_agents_limit_counts_who_waits_when_it_is_set,
                a_send_with_its_own_agent_takes_a_seat_of_that_one,
                who_waits_for_an_agents_seat_and_gets_another_agent_goes_on,
                an_agents_send_that_is_taken_over_keeps_its_seat,
            }
            agents {
                a_published_spec_is_version_1,
                a_spec_that_equals_the_newest_adds_no_version,
                another_spec_is_the_next_version_and_leaves_the_one_before_as_it_was,
                limits_are_the_agents_and_stay_until_they_are_changed,
                publishers_at_the_same_time_get_numbers_without_gaps,
                a_repeat_under_a_key_names_what_the_first_request_led_to,
                an_alias_moves_from_version_to_version,
                an_alias_needs_an_agent_in_use_and_a_version_that_exists,
                references_mean_the_newest_a_number_or_an_alias,
                an_archived_agent_is_not_found_for_new_use_and_keeps_its_versions,
                publishing_restores_an_archived_agent,
                agents_are_listed_by_name_page_by_page,
                versions_are_listed_newest_first_page_by_page,
                an_agent_belongs_to_its_tenant,
                a_session_keeps_which_version_it_took,
                a_send_is_run_with_its_own_agent_and_the_next_one_with_the_sessions,
            }
            audit {
                an_empty_store_is_empty_and_sound,
                every_ordinary_step_leaves_the_store_sound,
                a_round_that_nobody_paid_for_is_reported,
                a_call_without_a_result_is_reported_once_the_next_round_came,
                an_open_round_is_reported_once_its_send_is_final,
                answers_in_another_order_are_reported,
                words_between_a_call_and_its_answer_are_reported,
                an_answer_to_a_call_that_is_open_is_reported,
                a_delivery_without_its_message_is_reported,
                a_child_that_nobody_reports_is_reported_after_a_minute,
                a_child_without_its_parent_needs_no_report,
                calls_words_and_children_leave_the_store_sound,
                a_running_send_that_nobody_takes_over_is_reported,
                a_dump_is_in_order,
            }
            blobs {
                a_blob_is_found_once_its_bytes_are_stored,
                what_is_held_stays_as_long_as_its_owner,
                a_marked_blob_is_nobodys_until_it_is_begun_anew,
                what_was_begun_and_not_finished_goes_as_well,
                blobs_are_looked_at_page_by_page,
                putting_and_sweeping_at_once_never_loses_what_is_held,
                bytes_are_kept_in_pieces,
            }
            boots {
                a_registered_boot_is_listed,
                a_renewal_extends_the_lease,
                a_late_boot_that_nobody_missed_goes_on,
                an_unknown_or_stopped_boot_is_dead,
                a_renewal_tells_of_its_own_sessions_signals_only,
                ended_boots_are_listed_for_ten_minutes,
                retention_removes_ended_boots_that_nothing_names,
                a_boot_that_ends_gives_back_what_it_owns,
                a_boot_that_was_declared_dead_gives_back_the_rest,
                a_boot_sees_what_it_owns_page_by_page,
                what_workers_have_is_listed_by_pool,
            }
            clocks {
                a_dead_process_is_found_although_the_clock_was_set_back,
                a_live_process_keeps_what_it_has_when_the_clock_is_set_back,
                what_became_ready_before_the_clock_was_set_back_is_swept,
                nothing_is_early_after_the_clock_was_set_back,
                a_clock_that_is_set_forward_costs_leases_and_nothing_else,
            }
            deliveries {
                a_round_delivers_items_as_messages,
                an_item_is_delivered_once,
                a_stale_owner_delivers_nothing,
                undelivered_words_keep_a_send_from_ending,
                other_signals_keep_no_send_from_ending,
                what_an_end_leaves_is_for_the_next_send,
                a_claim_tells_of_what_an_end_left,
                a_cancel_goes_before_words,
                ends_of_one_call_are_kept_back_each_for_itself,
            }
            erase {
                what_a_deleted_session_left_is_nobodys,
                a_deleted_session_goes_page_by_page,
                a_tree_goes_wherever_its_removal_broke_off,
                who_is_created_below_a_deleted_session_goes_too,
                a_huge_session_goes_beside_everybody_elses_work,
                very_many_open_sends_end_page_by_page,
            }
            erasing {
                nothing_is_left_of_an_erased_tenant_and_everything_of_the_others,
                what_is_written_late_is_found_before_an_erasure_ends,
                an_erasure_begins_once_and_revokes_keys,
                a_held_tenant_is_not_erased,
            }
            firing {
                a_due_timer_makes_one_send_and_rings,
                a_fixed_rate_goes_on_without_drift,
                an_occurrence_joins_a_send_that_has_not_begun,
                what_was_missed_follows_the_rule,
                a_closed_session_makes_its_timers_wait_and_then_dead,
                a_timer_starts_a_run_with_each_occurrence,
                several_schedulers_fire_each_occurrence_once,
                firing_and_other_work_on_the_same_sessions_go_together,
                the_oldest_due_timers_are_fired_first,
                occurrences_are_listed_newest_first_in_pages,
            }
            keepers {
                what_is_granted_is_what_a_claim_behind_the_accept_would_grant,
                nobody_else_claims_what_was_granted_until_its_keeper_dies,
                a_keeper_that_gives_back_has_lost_nothing,
                nothing_is_granted_to_who_is_not_a_live_worker_of_the_pool,
                nothing_is_granted_of_a_session_that_does_not_rest,
                nothing_is_granted_where_seats_are_counted,
                of_sends_of_one_call_the_first_is_granted,
                a_keyed_send_is_granted_once,
            }
            lists {
                entries_are_added_changed_and_removed,
                every_member_of_an_entry_is_kept,
                a_repeated_call_changes_nothing_and_answers_as_before,
                what_is_refused_leaves_nothing_behind,
                writers_at_once_never_pass_the_cap_nor_share_a_number,
                lists_go_with_their_session,
                copies_bring_their_lists,
                only_so_many_writes_are_remembered,
            }
            mcp_lists {
                the_last_list_of_each_server_is_kept,
            }
            memories {
                an_entry_is_kept_whole,
                what_is_entered_twice_is_there_once,
                an_entry_is_changed_in_what_is_named,
                a_namespace_shows_what_is_below_it_and_nothing_beside_it,
                the_right_entry_is_among_the_first_five,
                every_store_gives_the_same_order,
                questions_mean_nothing_to_a_database,
                vectors_find_what_words_do_not,
                entries_without_vectors_are_taken_by_one_at_a_time,
                what_has_expired_is_not_found_and_goes,
                a_namespace_is_erased_in_pieces_and_leaves_a_record,
                writers_at_once_enter_each_entry_once,
            }
            pauses {
                a_pause_is_listed_until_it_ends,
                what_is_not_paused_can_be_resumed,
                pauses_are_listed_in_the_order_of_their_keys,
                a_send_is_woken_when_its_pause_ends,
                a_send_that_parks_after_the_end_of_its_pause_is_woken,
                a_send_that_waits_for_something_else_is_not_woken,
                a_later_note_takes_the_place_of_the_one_before,
                sends_are_woken_piece_by_piece,
                a_paused_send_that_was_cancelled_leaves_its_note,
                a_pause_that_ended_is_remembered_for_late_notes,
                the_pauses_of_a_tenant_go_with_it,
            }
            money {
                a_call_has_as_much_as_fits_besides_the_others,
                calls_that_race_never_pass_a_limit,
                a_repeat_reserves_and_settles_once,
                what_a_dead_boot_has_set_aside_counts_as_spent,
                what_is_set_aside_for_too_long_counts_as_spent,
                a_day_begins_with_nothing_but_what_is_under_way,
                a_month_is_the_sum_of_its_days,
                a_first_limit_begins_with_what_the_sends_of_the_month_cost,
                money_is_a_tenants_own_and_goes_with_it,
                tokens_are_set_aside_and_spent_beside_money,
                a_minute_has_its_own_limit_and_calls_wait_for_the_next,
                a_limit_of_tokens_alone_begins_with_what_the_sends_of_the_month_took,
            }
            agent_money {
                a_call_counts_for_its_agent_and_for_the_tenant,
                an_agents_limit_holds_where_its_tenant_has_none,
                tokens_of_an_agent_are_its_own,
                calls_of_agents_that_race_never_pass_a_limit,
                a_call_sets_aside_ahead_what_is_little_of_all_limits,
                a_call_of_an_agent_reserves_and_settles_once,
                what_a_dead_boot_has_set_aside_counts_for_its_agents,
                an_agents_account_begins_with_nothing_and_goes_with_its_limit,
                days_and_months_of_an_agent_are_kept_for_more_than_a_year,
                a_minute_of_an_agent_has_its_own_limit,
                the_accounts_of_agents_go_with_their_tenant,
            }
            provider_keys {
                a_key_takes_the_place_of_the_one_before,
                keys_are_listed_by_their_providers,
                a_deleted_key_is_gone,
                the_provider_keys_of_a_tenant_go_with_it,
            }
            prune {
                old_messages_go_and_the_rest_keeps_its_numbers,
                a_call_stays_with_its_results_and_the_last_message_stays,
                what_the_open_send_wrote_stays,
                a_pruned_message_may_have_come_through_the_inbox,
                nothing_is_pruned_of_what_is_not_there,
                a_long_transcript_goes_page_by_page,
                what_was_cached_before_a_prune_counts_for_nothing,
                another_agent_is_another_context,
            }
            reads {
                the_store_tells_the_time_and_what_it_is,
                sends_are_found_by_id_in_the_asked_order,
                sessions_are_listed_newest_first_by_page,
                sessions_are_filtered,
                sessions_are_found_by_members_of_their_metadata_whatever_their_names,
                every_status_of_a_session_can_be_asked_for,
                sends_are_listed_and_filtered_newest_first,
                a_transcript_is_read_piece_by_piece,
                messages_are_found_newest_first_by_send_and_by_call,
                steps_are_read_piece_by_piece,
                steps_are_found_by_when_they_were_committed,
                sessions_with_steps_of_one_moment_are_found_page_by_page,
                tenants_do_not_see_each_other,
                stats_count_what_waits_and_runs,
            }
            retention {
                old_sends_go_and_what_was_said_stays,
                sends_that_are_open_or_untold_stay,
                sends_of_a_run_stay_with_it,
                sends_are_looked_at_page_by_page,
                a_page_is_bounded_by_the_rounds_of_its_sends,
                what_is_as_old_and_stays_is_counted,
            }
            run_batches {
                a_lost_advance_takes_no_room_for_leaves,
                an_advance_of_another_ones_run_is_lost_with_or_without_room,
                a_leaf_that_cannot_go_on_loses_the_advance_of_its_run_only,
            }
            run_ends {
                a_final_run_has_no_owner_and_keeps_its_result,
                a_final_run_can_be_forgotten,
                the_end_of_a_run_is_the_result_of_the_call_that_waits,
                a_busy_session_finds_the_end_of_a_run_in_its_inbox,
                a_session_at_rest_is_woken_by_the_end_of_a_run,
                a_session_at_rest_may_be_told_with_its_next_send,
                the_runs_of_a_deleted_session_are_asked_to_end,
            }
            run_turns {
                the_run_that_was_looked_at_last_comes_last,
                a_wide_run_leaves_ends_to_the_others,
                runs_that_were_set_aside_are_left_out,
                runs_of_a_later_language_are_left_to_others,
            }
            runs {
                a_created_run_reads_back_and_is_due_at_once,
                a_repeated_creation_creates_nothing,
                every_end_of_a_leaf_is_news_until_it_is_noted,
                a_stale_advance_changes_nothing,
                one_lost_advance_leaves_its_neighbours_alone,
                a_run_is_taken_from_a_dead_process_only,
                how_often_a_run_outlived_its_owners_is_counted,
                a_run_that_is_given_up_can_be_taken,
                asks_are_news_until_they_are_noted,
                nodes_are_written_over_and_read_in_pieces,
                an_alarm_makes_a_run_due,
                a_bound_over_all_runs_of_a_tenant_holds,
                a_leaf_goes_on_in_a_session_that_takes_sends,
                runs_are_listed_newest_first,
                an_unowned_boot_is_nobody,
                what_is_asked_can_be_read_until_an_advance_takes_it,
            }
            seats {
                no_more_sends_run_than_there_are_seats,
                seats_are_exact_however_many_claim_at_once,
                who_waits_is_called_in_the_order_of_its_work,
                nobody_passes_those_who_wait,
                who_was_called_and_does_not_come_is_passed,
                who_waits_is_found_ready_only_once_it_was_called,
                a_send_that_is_taken_over_keeps_its_seat,
                a_parked_send_gives_its_seat_back_and_needs_another,
                a_limit_that_is_lowered_takes_effect_as_seats_are_given_back,
                without_a_limit_nobody_waits_any_more,
                leaves_have_seats_among_all_sends_and_among_leaves,
                who_has_no_work_any_more_leaves_the_line,
                seats_are_a_tenants_own_and_go_with_it,
            }
            skills {
                a_published_skill_is_found_and_read_as_it_was,
                a_name_means_the_version_that_was_published_last,
                a_mounted_skill_does_not_replace_an_uploaded_one,
                a_removed_skill_stays_for_those_who_have_it,
                a_key_publishes_once,
                publications_at_the_same_time_make_one_version,
                a_broken_skill_is_noted_until_it_is_mended,
                skills_are_listed_by_name_in_pages,
                skills_belong_to_one_tenant,
            }
            spending {
                what_is_set_aside_reads_back,
                the_next_claim_reads_what_the_session_spent,
                an_end_counts_for_the_next_send,
                a_park_counts_whether_it_waits_or_ends,
                an_end_without_a_worker_pays_for_what_the_dead_one_bought,
                what_a_session_and_those_below_it_cost_is_summed_by_model,
            }
            tenants {
                the_default_tenant_exists_from_the_start,
                a_tenant_gets_the_next_number_and_a_name_of_its_own,
                a_tenant_is_found_by_its_name,
                a_repeated_request_creates_one_tenant,
                a_tenant_is_renamed_to_a_name_that_is_free,
                what_a_tenant_says_of_pools_is_kept_and_listed,
                only_an_empty_tenant_is_deleted_and_its_keys_with_it,
                a_key_is_found_by_its_id_as_it_was_created,
                a_key_keeps_what_it_is_bound_to,
                a_key_keeps_its_limits,
                a_repeated_request_creates_one_key,
                keys_are_listed_newest_first_and_only_their_tenants,
                a_rotation_keeps_the_secret_before_for_its_overlap,
                a_revoked_key_keeps_the_time_of_its_first_revocation,
                a_key_is_forgotten_a_while_after_it_was_revoked_or_has_expired,
                that_there_were_keys_is_remembered_when_none_is_left,
                the_last_use_of_a_key_is_noted,
            }
            timers {
                a_timer_needs_an_open_session_and_a_schedule,
                a_repeated_request_makes_one_timer,
                the_bound_of_armed_timers_is_exact,
                paused_timers_wait_and_ended_ones_stay_ended,
                a_timer_is_fired_by_hand_once_for_each_occurrence,
                an_amended_timer_follows_its_new_rules,
                another_sessions_timer_is_not_found,
                deleting_a_session_ends_its_timers,
                timers_are_listed_newest_first_in_pages,
                retention_takes_old_occurrences_and_ended_timers,
            }
            webhooks {
                an_endpoint_is_listed_changed_and_deleted,
                another_tenants_endpoint_is_not_found,
                a_repeated_request_creates_one_endpoint,
                a_tenant_has_a_bounded_number_of_endpoints,
                without_endpoints_nothing_is_noted,
                the_end_of_a_send_reaches_each_endpoint_that_wants_it_once,
                a_send_that_ends_without_a_worker_is_told_too,
                the_next_sends_of_a_session_are_told_apart,
                a_send_that_waits_for_someone_is_told_and_one_that_waits_for_a_time_is_not,
                the_end_of_a_run_is_told_once,
                a_timer_that_gives_up_is_told_once,
                a_claimed_delivery_is_due_again_when_its_lease_ends,
                a_failed_attempt_is_followed_by_another_one_or_the_delivery_is_dead,
                an_attempt_under_way_does_not_settle_what_was_asked_for_since,
                each_endpoint_gets_its_share_and_busy_ones_are_left_out,
                what_was_settled_long_ago_goes,
                what_is_on_its_way_goes_with_the_endpoint,
                endpoints_go_with_their_tenant,
            }
        }
    };
}
