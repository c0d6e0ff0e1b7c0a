//! A request to move replicas: one thread answers it when its time is over, while another one is
//! still at a disk for it. What of it has begun by then is known, and no more begins.

use std::collections::HashMap;
use std::result::Result;

use parking_lot::Mutex;

use super::MoveRefusal;

/// The outcome for one partition.
pub type MoveOutcome = ((String, i32), Result<(), MoveRefusal>);

/// The outcomes of one request, by partition; of one that is named twice, the last.
#[derive(Default)]
pub struct MoveRequest {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_answered: bool,
    outcomes: HashMap<(String, i32), Result<(), MoveRefusal>>,
}

impl MoveRequest {
    /// Takes the outcomes that there are. The other partitions count as refused: after this
    /// returns, no move of them begins.
    pub fn answer(&self) -> Vec<MoveOutcome> {
        let mut state = self.state.lock();
        state.is_answered = true;
        std::mem::take(&mut state.outcomes).into_iter().collect()
    }

    pub fn is_answered(&self) -> bool {
        self.state.lock().is_answered
    }

    pub(super) fn check_not_answered(&self) -> Result<(), MoveRefusal> {
        if self.is_answered() {
            return Err(MoveRefusal::Answered);
        }
        Ok(())
    }

    /// Calls `begin`, which waits for nobody, unless the request is answered: whoever answers it
    /// sees that the move has begun, or it does not begin.
    pub(super) fn grant(
        &self,
        topic: &str,
        partition: i32,
        begin: impl FnOnce(),
    ) -> Result<(), MoveRefusal> {
        let mut state = self.state.lock();
        if state.is_answered {
            return Err(MoveRefusal::Answered);
        }
        begin();
        state.outcomes.insert((topic.to_owned(), partition), Ok(()));
        Ok(())
    }

    pub(super) fn note(&self, topic: &str, partition: i32, outcome: &Result<(), MoveRefusal>) {
        let mut state = self.state.lock();
        if !state.is_answered {
            let key = (topic.to_owned(), partition);
            state.outcomes.insert(key, outcome.clone());
        }
    }
}
