//! Which log is due for cleaning, how far, and in which groups: decisions over numbers.

use kafkalite::log::compact::plan::{self, CleanPlan, LogFacts, SegmentFacts};
use kafkalite::log::config::LogConfig;

const NOW_MS: i64 = 1_000_000;

/// A segment of 100 bytes, whose records were written at `written_ms`.
fn segment(base_offset: i64, written_ms: i64) -> SegmentFacts {
    SegmentFacts {
        base_offset,
        size_bytes: 100,
        largest_timestamp: written_ms,
        first_batch_timestamp: written_ms,
        offset_index_bytes: 8,
        time_index_bytes: 12,
    }
}

/// Segments at 0, 100, 200, 300, written at 1, 2, 3 and 4 seconds, the last one active.
fn four() -> Vec<SegmentFacts> {
    (0..4)
        .map(|slot| segment(slot * 100, (slot + 1) * 1000))
        .collect()
}

fn facts(last_stable_offset: i64) -> LogFacts {
    LogFacts {
        log_start_offset: 0,
        log_end_offset: 350,
        last_stable_offset,
        truncations: 0,
    }
}

fn plan(checkpoint: Option<i64>, last_stable_offset: i64, config: &LogConfig) -> CleanPlan {
    CleanPlan::of(
        &four(),
        facts(last_stable_offset),
        checkpoint,
        config,
        NOW_MS,
    )
}

fn range(plan: CleanPlan) -> (i64, i64) {
    (plan.first_dirty_offset, plan.first_uncleanable_offset)
}

#[test]
fn a_log_never_cleaned_is_dirty_from_its_start_to_the_active_segment() {
    let plan = plan(None, 350, &LogConfig::default());
    assert_eq!(range(plan), (0, 300));
    assert_eq!((plan.clean_bytes, plan.cleanable_bytes), (0, 300));
    assert_eq!(plan.dirty_ratio(), 1.0);
}

#[test]
fn the_dirty_part_begins_at_the_checkpoint_and_counts_its_segment_on_both_sides() {
    let at_base = plan(Some(200), 350, &LogConfig::default());
    assert_eq!((at_base.clean_bytes, at_base.cleanable_bytes), (200, 100));
    let within = plan(Some(150), 350, &LogConfig::default());
    assert_eq!((within.clean_bytes, within.cleanable_bytes), (200, 200));
    assert!(
        !within.is_due(&LogConfig::default()),
        "one half is not more than one half"
    );
}

#[test]
fn the_segment_that_holds_the_last_stable_offset_stays() {
    assert_eq!(range(plan(None, 250, &LogConfig::default())), (0, 200));
    assert_eq!(range(plan(None, 200, &LogConfig::default())), (0, 200));
    let nothing = plan(Some(150), 160, &LogConfig::default());
    assert_eq!(
        (nothing.first_uncleanable_offset, nothing.cleanable_bytes),
        (100, 0)
    );
}

#[test]
fn a_log_cleaned_up_to_the_active_segment_has_nothing_to_clean() {
    let config = LogConfig {
        min_cleanable_dirty_ratio: 0.0,
        ..LogConfig::default()
    };
    for checkpoint in [300, 350] {
        let plan = plan(Some(checkpoint), 350, &config);
        assert_eq!(plan.cleanable_bytes, 0);
        assert!(!plan.is_due(&config));
    }
}

#[test]
fn records_younger_than_the_minimal_lag_keep_their_segment_and_all_behind_it() {
    let lag = |min_compaction_lag_ms| LogConfig {
        min_compaction_lag_ms,
        ..LogConfig::default()
    };
    assert_eq!(range(plan(None, 350, &lag(NOW_MS - 2000))), (0, 200));
    assert_eq!(range(plan(None, 350, &lag(NOW_MS - 1999))), (0, 100));
    assert_eq!(range(plan(None, 350, &lag(NOW_MS))), (0, 0));
    assert_eq!(range(plan(None, 350, &lag(i64::MAX))), (0, 0));
    assert_eq!(range(plan(None, 350, &lag(-1))), (0, 300));
}

#[test]
fn a_log_is_due_by_its_ratio_or_by_the_age_of_its_oldest_dirty_segment() {
    let config = |min_cleanable_dirty_ratio, max_compaction_lag_ms| LogConfig {
        min_cleanable_dirty_ratio,
        max_compaction_lag_ms,
        ..LogConfig::default()
    };
    let third = |config: &LogConfig| plan(Some(200), 350, config);
    assert!(third(&config(0.33, i64::MAX)).is_due(&config(0.33, i64::MAX)));
    assert!(!third(&config(0.34, i64::MAX)).is_due(&config(0.34, i64::MAX)));
    // The first batch of the segment at 200 was written at 3 s.
    let late = config(1.0, NOW_MS - 3000 - 1);
    assert_eq!(third(&late).compaction_delay_ms, 1);
    assert!(third(&late).is_due(&late));
    let in_time = config(1.0, NOW_MS - 3000);
    assert_eq!(third(&in_time).compaction_delay_ms, 0);
    assert!(!third(&in_time).is_due(&in_time));
}

#[test]
fn a_late_log_of_which_nothing_can_be_cleaned_is_not_due() {
    let config = LogConfig {
        max_compaction_lag_ms: 0,
        ..LogConfig::default()
    };
    let plan = plan(Some(0), 50, &config);
    assert!(plan.compaction_delay_ms > 0 && plan.cleanable_bytes == 0);
    assert!(!plan.is_due(&config));
}

#[test]
fn a_checkpoint_outside_of_the_log_counts_as_the_log_start() {
    let log = LogFacts {
        log_start_offset: 120,
        ..facts(350)
    };
    for checkpoint in [0, 119, 351] {
        let config = LogConfig::default();
        let plan = CleanPlan::of(&four(), log, Some(checkpoint), &config, NOW_MS);
        assert!(plan.checkpoint_is_invalid);
        assert_eq!(plan.first_dirty_offset, 120);
    }
    for checkpoint in [120, 350] {
        let config = LogConfig::default();
        assert!(
            !CleanPlan::of(&four(), log, Some(checkpoint), &config, NOW_MS).checkpoint_is_invalid
        );
    }
}

#[test]
fn a_log_of_its_active_segment_alone_has_nothing_to_clean() {
    let only = [segment(0, 1000)];
    let plan = CleanPlan::of(&only, facts(350), None, &LogConfig::default(), NOW_MS);
    assert_eq!((range(plan), plan.cleanable_bytes), ((0, 0), 0));
}

/// The groups as pairs of first slot and end.
fn group_segments(
    segments: &[SegmentFacts],
    config: &LogConfig,
    first_uncleanable_offset: i64,
) -> Vec<(usize, usize)> {
    let groups = plan::group_segments(segments, config, first_uncleanable_offset);
    groups
        .iter()
        .map(|group| (group.start, group.end))
        .collect()
}

#[test]
fn neighbours_are_grouped_while_records_and_indexes_fit_in_one_segment() {
    let config = |segment_bytes, segment_index_bytes| LogConfig {
        segment_bytes,
        segment_index_bytes,
        ..LogConfig::default()
    };
    let groups = |config: &LogConfig| group_segments(&four(), config, 400);
    assert_eq!(groups(&config(1000, 1000)), [(0, 4)]);
    assert_eq!(groups(&config(399, 1000)), [(0, 3), (3, 4)]);
    assert_eq!(groups(&config(200, 1000)), [(0, 2), (2, 4)]);
    assert_eq!(groups(&config(50, 1000)), [(0, 1), (1, 2), (2, 3), (3, 4)]);
    assert_eq!(
        groups(&config(1000, 47)),
        [(0, 3), (3, 4)],
        "the time index is the larger one"
    );
    assert!(group_segments(&[], &config(1000, 1000), 400).is_empty());
}

#[test]
fn a_group_spans_no_more_offsets_than_an_index_entry_can_say() {
    let far = i64::from(i32::MAX);
    let config = LogConfig::default();
    let two = [segment(0, 1), segment(10, 1)];
    assert_eq!(group_segments(&two, &config, far + 1), [(0, 2)]);
    assert_eq!(group_segments(&two, &config, far + 2), [(0, 1), (1, 2)]);
    // The next segment's base offset bounds the one before it.
    let three = [segment(0, 1), segment(10, 1), segment(far + 1, 1)];
    assert_eq!(group_segments(&three, &config, far + 100), [(0, 2), (2, 3)]);
    // An empty segment holds no offset at all.
    let mut empty = two;
    empty[1].size_bytes = 0;
    assert_eq!(group_segments(&empty, &config, far * 3), [(0, 2)]);
}
