//! The listeners, which the first network thread has: connections are taken from them, judged
//! (`net/admission/`), and given to the threads in turn.
//!
//! ```text
//! no room for one more       it waits in the listener's backlog, until another connection closes; so it
//!                            does where files would lack descriptors
//! came too soon              it is held until its time has come, and those behind it wait in the backlog
//! its address has too many   it is closed at once
//! ```

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use crate::limits::ACCEPTS_PER_TURN;
use crate::net::mailbox::Message;
use crate::net::poller::{Poller, Readiness};
use crate::net::shared::Shared;
use crate::net::transport::Transport;

/// Token of the first listener; the others follow downwards.
pub const LISTENER_TOKEN: u64 = u64::MAX - 1;

/// The thread that has the listeners.
const LISTENING_THREAD: usize = 0;

/// All of a thread; those of others than the first are none.
pub struct Listeners {
    all: Vec<Listener>,
    next_thread: usize,
    /// When a connection that is held may go on.
    pub due_ms: u64,
    /// That descriptors are short.
    has_told: bool,
}

struct Listener {
    socket: TcpListener,
    /// It is looked at.
    accepts: bool,
    held: Option<Held>,
}

struct Held {
    transport: Transport,
    peer: SocketAddr,
    until_ms: u64,
}

impl Listeners {
    /// The poller looks at all of `sockets`.
    pub fn new(sockets: Vec<TcpListener>) -> Listeners {
        let listener = |socket| Listener {
            socket,
            accepts: true,
            held: None,
        };
        Listeners {
            all: sockets.into_iter().map(listener).collect(),
            next_thread: 0,
            due_ms: u64::MAX,
            has_told: false,
        }
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Closes them, with what is held and what waits in their backlogs.
    pub fn close(&mut self) {
        self.all.clear();
        self.due_ms = u64::MAX;
    }
}

impl Listeners {
    /// Takes connections from a listener, as long as there is room for them. Gives those that are
    /// for the first thread itself.
    pub fn accept(
        &mut self,
        number: usize,
        now_ms: u64,
        poller: &Poller,
        shared: &Shared,
    ) -> Vec<Message> {
        let mut own = Vec::new();
        for _ in 0..ACCEPTS_PER_TURN {
            if !shared.admission.has_room(number) {
                self.tell_of_descriptors(shared);
                self.listen(number, false, poller);
                break;
            }
            let Some(listener) = self.all.get_mut(number) else {
                break;
            };
            match listener.socket.accept() {
                Ok((stream, peer)) => {
                    let transport = Transport::Plain(stream);
                    let peer = canonical(peer);
                    let wait_ms = shared.admission.wait_ms(number, now_ms);
                    if wait_ms == 0 {
                        own.extend(self.admit(transport, peer, number, shared));
                        continue;
                    }
                    let until_ms = now_ms + wait_ms;
                    listener.held = Some(Held {
                        transport,
                        peer,
                        until_ms,
                    });
                    self.due_ms = self.due_ms.min(until_ms);
                    self.listen(number, false, poller);
                    break;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                // Out of descriptors: the listener stays readable, so look away for a while.
                Err(_) => {
                    self.listen(number, false, poller);
                    break;
                }
            }
        }
        own
    }

    /// Has the log say once that it is no limit of Kafka's for which connections wait.
    fn tell_of_descriptors(&mut self, shared: &Shared) {
        let admission = &shared.admission;
        if admission.lacks_descriptors() && !std::mem::replace(&mut self.has_told, true) {
            let count = admission.count();
            shared.control().notice(format!(
                "{count} connections use all file descriptors (ulimit -n): more \
                 wait until one closes"
            ));
        }
    }

    /// Gives a connection to the next thread. If that is the first one itself,
    /// the message is given back.
    fn admit(
        &mut self,
        transport: Transport,
        peer: SocketAddr,
        listener: usize,
        shared: &Shared,
    ) -> Option<Message> {
        if !shared.admission.enter(listener, peer.ip()) {
            let refused = &shared.counts.refused_connections;
            refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let thread = self.next_thread % shared.mailboxes.len();
        self.next_thread += 1;
        let message = Message::Accepted {
            transport,
            peer,
            listener,
        };
        if thread == LISTENING_THREAD {
            return Some(message);
        }
        shared.mailboxes.post(thread, message);
        None
    }

    /// Looks at a listener, or away from it: what comes waits in its backlog.
    fn listen(&mut self, number: usize, accepts: bool, poller: &Poller) {
        let Some(listener) = self.all.get_mut(number) else {
            return;
        };
        listener.accepts = accepts;
        let interest = Readiness {
            readable: accepts,
            ..Readiness::default()
        };
        let token = LISTENER_TOKEN - number as u64;
        // The descriptor is in the poller, and nothing else can fail.
        let _ = poller.change(listener.socket.as_raw_fd(), token, interest);
    }

    /// Looks at all listeners again but those that hold a connection still. Gives connections that
    /// were held and are for the first thread itself.
    pub fn listen_again(&mut self, now_ms: u64, poller: &Poller, shared: &Shared) -> Vec<Message> {
        let mut own = Vec::new();
        self.due_ms = u64::MAX;
        for number in 0..self.len() {
            let listener = self.all.get(number);
            if listener.is_some_and(|listener| !listener.accepts)
                && self.let_in(number, now_ms, shared, &mut own)
            {
                self.listen(number, true, poller);
            }
        }
        own
    }

    /// Admits the connection that a listener holds, if it may go on now. False: it stays held.
    fn let_in(
        &mut self,
        number: usize,
        now_ms: u64,
        shared: &Shared,
        own: &mut Vec<Message>,
    ) -> bool {
        let Some(listener) = self.all.get_mut(number) else {
            return false;
        };
        let Some(held) = &listener.held else {
            return true;
        };
        if held.until_ms > now_ms {
            self.due_ms = self.due_ms.min(held.until_ms);
            return false;
        }
        // Connections of other listeners may have come meanwhile.
        if !shared.admission.has_room(number) {
            return false;
        }
        if let Some(held) = listener.held.take() {
            own.extend(self.admit(held.transport, held.peer, number, shared));
        }
        true
    }
}

/// As operators write it and Kafka tells it: IPv4 also where it came in by an IPv6 socket.
fn canonical(peer: SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}
