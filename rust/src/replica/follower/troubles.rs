//! Troubles with a leader, as the log is told of them: each kind once in a while, with how often it
//! has come meanwhile, so that a thousand partitions that are refused, or a connection that comes
//! and goes, do not hide all else.

use std::collections::BTreeMap;

use crate::limits::{FETCHER_TROUBLE_KINDS_MAX, FETCHER_TROUBLE_PAUSE_MS};

struct Told {
    at_ms: i64,
    /// How often it has come since, untold.
    more: u64,
}

/// The troubles that were reported recently, by kind. Pure: the time comes in, of a
/// clock that is not set back.
pub struct Troubles<K> {
    told: BTreeMap<K, Told>,
}

impl<K> Default for Troubles<K> {
    fn default() -> Troubles<K> {
        Troubles {
            told: BTreeMap::new(),
        }
    }
}

impl<K: Ord> Troubles<K> {
    /// A trouble has come. Returns what ends its sentence, if it is to be told now.
    pub fn note(&mut self, kind: K, now_ms: i64) -> Option<String> {
        let known = self.told.get_mut(&kind);
        let more = match known {
            Some(told) if now_ms.saturating_sub(told.at_ms) < FETCHER_TROUBLE_PAUSE_MS => {
                told.more = told.more.saturating_add(1);
                return None;
            }
            Some(told) => told.more,
            None => 0,
        };
        if more == 0 && self.told.len() >= FETCHER_TROUBLE_KINDS_MAX {
            self.told.clear();
        }
        let told = Told {
            at_ms: now_ms,
            more: 0,
        };
        self.told.insert(kind, told);
        Some(match more {
            0 => String::new(),
            more => format!(" (and {more} more since the last such line)"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_told_once_in_a_while_with_how_often_it_has_come() {
        let mut troubles = Troubles::default();
        assert_eq!(troubles.note("refused", 0), Some(String::new()));
        assert_eq!(troubles.note("gone", 1), Some(String::new()), "another");
        for now_ms in 2..9 {
            assert_eq!(troubles.note("refused", now_ms), None);
        }
        let told = troubles.note("refused", FETCHER_TROUBLE_PAUSE_MS);
        let more = " (and 7 more since the last such line)";
        assert_eq!(told.as_deref(), Some(more));
        assert_eq!(troubles.note("refused", FETCHER_TROUBLE_PAUSE_MS + 1), None);
    }

    #[test]
    fn kinds_beyond_all_bounds_are_not_remembered() {
        let mut troubles = Troubles::default();
        for kind in 0..10 * FETCHER_TROUBLE_KINDS_MAX {
            assert_eq!(troubles.note(kind, 0), Some(String::new()));
            assert!(troubles.told.len() <= FETCHER_TROUBLE_KINDS_MAX);
        }
    }
}
