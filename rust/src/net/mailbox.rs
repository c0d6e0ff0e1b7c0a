//! The mailbox of each network thread: how other threads hand it connections, answers of Python and
//! results of storage calls, and wake it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::limits::ANSWERS_GATHERED_MAX;
use crate::net::control::queue::{ControlAnswer, ControlQueue};
use crate::net::poller::WakeUp;
use crate::net::storage_call::CallResult;
use crate::net::transport::Transport;
use crate::replica::park::{Parked, Wake};

/// The search for the connection that has been used least recently, which
/// goes from thread to thread.
#[derive(Clone, Copy, Default)]
pub struct Excess {
    /// Threads that have said theirs.
    pub looked: usize,
    /// When it was used, and whose it is.
    pub oldest: Option<(u64, usize)>,
}

/// A message to a network thread.
pub enum Message {
    Accepted {
        transport: Transport,
        peer: SocketAddr,
        listener: usize,
    },
    /// A parked request may go on.
    Woken(Parked),
    /// Python's answer.
    Control(Parked, ControlAnswer),
    /// The result of a storage call.
    CallResult(CallResult),
    /// A connection was closed for which a listener waits, or there may be more than before.
    Room,
    /// There may be more connections than the broker may have.
    Excess(Excess),
    /// Connections that wait for memory may ask again.
    Memory,
    Stop,
    #[cfg(test)]
    Panic,
}

/// Messages for one thread; posting wakes it if it has left the box empty to wait for its sockets.
pub struct Mailbox {
    messages: Mutex<Vec<Message>>,
    is_left: AtomicBool,
    pub wake_up: WakeUp,
}

impl Mailbox {
    fn new() -> std::io::Result<Mailbox> {
        Ok(Mailbox {
            messages: Mutex::default(),
            is_left: AtomicBool::new(false),
            wake_up: WakeUp::new()?,
        })
    }

    pub fn post(&self, further: impl IntoIterator<Item = Message>) {
        self.messages.lock().extend(further);
        if self.is_left.swap(false, Ordering::Relaxed) {
            self.wake_up.wake();
        }
    }

    /// Before the thread waits for its sockets. True: there is nothing, and who posts from now
    /// on until `take` wakes it.
    pub fn is_left_empty(&self) -> bool {
        // The lock orders this and the look at it: either the message is seen here, or this there.
        self.is_left.store(true, Ordering::Relaxed);
        self.messages.lock().is_empty()
    }

    pub fn take(&self) -> Vec<Message> {
        self.is_left.store(false, Ordering::Relaxed);
        std::mem::take(&mut *self.messages.lock())
    }
}

/// The mailboxes of all network threads, and the queue of the control thread: what wakes whoever is
/// parked.
pub struct Mailboxes {
    threads: Vec<Mailbox>,
    pub control: Arc<ControlQueue>,
}

impl Mailboxes {
    pub fn new(count: usize) -> std::io::Result<Arc<Mailboxes>> {
        let threads = (0..count.max(1)).map(|_| Mailbox::new());
        Ok(Arc::new(Mailboxes {
            threads: threads.collect::<std::io::Result<_>>()?,
            control: Arc::default(),
        }))
    }

    pub fn post(&self, thread: usize, message: Message) {
        self.post_all(thread, [message]);
    }

    pub fn post_all(&self, thread: usize, messages: impl IntoIterator<Item = Message>) {
        if let Some(mailbox) = self.threads.get(thread) {
            mailbox.post(messages);
        }
    }

    /// Tells all threads that those that wait for memory may ask again.
    pub fn tell_of_memory(&self) {
        for mailbox in &self.threads {
            mailbox.post([Message::Memory]);
        }
    }
}

impl std::ops::Deref for Mailboxes {
    type Target = [Mailbox];
    fn deref(&self) -> &[Mailbox] {
        &self.threads
    }
}

impl Wake for Mailboxes {
    fn wake(&self, parked: &[Parked]) {
        for (thread, mailbox) in self.threads.iter().enumerate() {
            let its = parked.iter().filter(|each| each.thread == thread);
            let mut its = its.map(|each| Message::Woken(*each)).peekable();
            if its.peek().is_some() {
                mailbox.post(its);
            }
        }
        let of_python = |each: &&Parked| each.thread >= self.threads.len();
        for each in parked.iter().filter(of_python) {
            self.control.wake(each.slot);
        }
    }
}

/// Answers of Python's that go to the network threads together, so that those
/// wake for several at once.
#[derive(Default)]
pub struct Answers {
    /// `None`: each goes at once. By thread.
    gathered: Option<Vec<Vec<Message>>>,
    count: usize,
}

impl Answers {
    /// Holds back those that come from now on, `ANSWERS_GATHERED_MAX` at most, until `send`.
    pub fn gather(&mut self) {
        self.gathered.get_or_insert_default();
    }

    pub fn add(&mut self, parked: Parked, answer: ControlAnswer, mailboxes: &Mailboxes) {
        let message = Message::Control(parked, answer);
        let Some(gathered) = &mut self.gathered else {
            mailboxes.post(parked.thread, message);
            return;
        };
        if gathered.len() <= parked.thread {
            gathered.resize_with(parked.thread + 1, Vec::new);
        }
        gathered[parked.thread].push(message);
        self.count += 1;
        if self.count >= ANSWERS_GATHERED_MAX {
            self.send(mailboxes);
            self.gather();
        }
    }

    /// Sends what was held back.
    pub fn send(&mut self, mailboxes: &Mailboxes) {
        self.count = 0;
        let gathered = self.gathered.take().into_iter().flatten();
        for (thread, messages) in gathered.enumerate() {
            if !messages.is_empty() {
                mailboxes.post_all(thread, messages);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::poller::Poller;
    use crate::replica::park::CONTROL_THREAD;

    #[test]
    fn whoever_is_woken_is_told_by_the_mailbox_of_its_thread() {
        let mailboxes = Mailboxes::new(2).expect("two eventfds");
        let parked = |(slot, thread)| Parked {
            thread,
            connection: 0,
            slot,
        };
        let woken = (1..).zip([0, CONTROL_THREAD, 1, 0]).map(parked);
        mailboxes.wake(&woken.collect::<Vec<_>>());
        let told = mailboxes.iter().map(|mailbox| {
            let messages = mailbox.take().into_iter();
            let slots = messages.map(|message| match message {
                Message::Woken(parked) => parked.slot,
                _ => 0,
            });
            slots.collect()
        });
        assert_eq!(told.collect::<Vec<Vec<u64>>>(), [vec![1, 4], vec![3]]);
        let taken = mailboxes.control.take(None).expect("it is open");
        assert_eq!(taken.woken, [2]);
    }

    /// Each answer of Python's cost two system calls to wake a thread that was awake.
    #[test]
    fn who_posts_wakes_a_thread_once_and_only_one_that_waits() {
        let mailbox = Mailbox::new().expect("an eventfd");
        let mut poller = Poller::new().expect("a poller");
        poller.add_wake_up(&mailbox.wake_up, 7).expect("it is new");
        let mut is_woken = || {
            let mut events = Vec::new();
            poller.wait(0, &mut events).expect("events");
            !events.is_empty()
        };
        let post = || mailbox.post([Message::Room]);
        post();
        assert!(!is_woken(), "it is awake");
        assert!(!mailbox.is_left_empty(), "it must not wait");
        post();
        assert!(is_woken(), "it was about to");
        assert_eq!(mailbox.take().len(), 2);
        post();
        assert!(!is_woken(), "it is awake again");
        assert_eq!(mailbox.take().len(), 1);
        for _ in 0..2 {
            assert!(mailbox.is_left_empty());
            assert!(!is_woken(), "nothing has come");
            post();
            post();
            assert!(is_woken());
            assert!(!is_woken(), "once");
            assert_eq!(mailbox.take().len(), 2);
        }
    }
}
