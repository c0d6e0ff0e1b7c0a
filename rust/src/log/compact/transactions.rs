//! The transactions that a walk through the log is in: which batches belong to aborted ones, and
//! which markers have lost all their records (`CleanedTransactionMetadata`).

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::batch::BatchHeader;
use crate::batch::ControlRecord;
use crate::log::state::producers::AbortedTransaction;

/// Carried from batch to batch, in the order of the log.
#[derive(Default)]
pub struct CleanedTransactions {
    /// Not reached yet; by first offset and producer.
    ahead: BTreeMap<(i64, i64), AbortedTransaction>,
    /// By producer; whether a batch of it has been seen.
    aborted: HashMap<i64, (AbortedTransaction, bool)>,
    /// Producers of which a batch has been seen that is not of an aborted transaction.
    committed: HashSet<i64>,
    /// Aborted transactions whose marker stays: the entries of the cleaned segment's index.
    pub retained: Vec<AbortedTransaction>,
}

impl CleanedTransactions {
    /// Adds transactions that overlap what comes next. Adding one twice has no effect.
    pub fn add_aborted(&mut self, transactions: &[AbortedTransaction]) {
        for transaction in transactions {
            let key = (transaction.first_offset, transaction.producer_id);
            self.ahead.insert(key, *transaction);
        }
    }

    /// A batch of records goes by. Returns whether its transaction was aborted: nobody needs them.
    pub fn on_batch(&mut self, header: &BatchHeader) -> bool {
        self.reach(header.last_offset());
        if !header.is_transactional() {
            return false;
        }
        match self.aborted.get_mut(&header.producer_id) {
            Some((_, seen)) => {
                *seen = true;
                true
            }
            None => {
                self.committed.insert(header.producer_id);
                false
            }
        }
    }

    /// A control batch goes by; `record` is its first one, if the cleaner has left one. Returns
    /// whether it may go once its delete horizon has passed: no record of its transaction is left.
    pub fn on_control_batch(
        &mut self,
        header: &BatchHeader,
        record: Option<ControlRecord>,
    ) -> bool {
        self.reach(header.last_offset());
        match record {
            None => true,
            Some(ControlRecord::EndTransaction(marker)) if marker.is_commit => {
                !self.committed.remove(&header.producer_id)
            }
            Some(ControlRecord::EndTransaction(_)) => {
                match self.aborted.remove(&header.producer_id) {
                    Some((transaction, true)) => {
                        self.retained.push(transaction);
                        false
                    }
                    _ => true,
                }
            }
            Some(_) => false,
        }
    }

    fn reach(&mut self, offset: i64) {
        while let Some(next) = self.ahead.first_entry()
            && next.key().0 <= offset
        {
            let transaction = next.remove();
            let entry = self.aborted.entry(transaction.producer_id);
            entry.or_insert((transaction, false));
        }
    }
}
