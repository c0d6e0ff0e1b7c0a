//! The listeners, which the first network thread has: connections are taken from them, judged
//! (`admission.rs`), and given to the threads in turn.
//!
//! ```text
//! no room for one more       it waits in the listener's backlog, until another connection closes; so it
//!                            does where files would lack descriptors
//! came too soon              it is held until its time has come, and those behind it wait in the backlog
//! its address has too many   it is closed at once
//! ```

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use crate::limits::ACCEPTS_PER_TURN;
use crate::net::mailbox::Message;
use crate::net::poller::Readiness;
use crate::net::reactor::{LISTENER_TOKEN, Reactor};

/// All of a thread; those of others than the first are none.
pub(super) struct Listeners {
    all: Vec<Listener>,
    next_thread: usize,
    /// When a connection that is held may go on.
    pub due_ms: u64,
    /// That descriptors are short.
    has_told: bool,
}

struct Listener {
    socket: TcpListener,
    /// Whether it is looked at.
    accepts: bool,
    held: Option<Held>,
}

struct Held {
    stream: TcpStream,
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

impl Reactor {
    /// Takes connections from a listener, as long as there is room for them.
    pub(super) fn accept(&mut self, number: usize) {
        for _ in 0..ACCEPTS_PER_TURN {
            if !self.shared.admission.has_room(number) {
                self.tell_of_descriptors();
                return self.listen(number, false);
            }
            let Some(listener) = self.listeners.all.get_mut(number) else {
                return;
            };
            match listener.socket.accept() {
                Ok((stream, peer)) => {
                    let peer = canonical(peer);
                    let wait_ms = self.shared.admission.wait_ms(number, self.now_ms);
                    if wait_ms == 0 {
                        self.admit(stream, peer, number);
                        continue;
                    }
                    let until_ms = self.now_ms + wait_ms;
                    listener.held = Some(Held {
                        stream,
                        peer,
                        until_ms,
                    });
                    self.listeners.due_ms = self.listeners.due_ms.min(until_ms);
                    return self.listen(number, false);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                // Out of descriptors: the listener stays readable, so look away for a while.
                Err(_) => return self.listen(number, false),
            }
        }
    }

    /// Has the log say once that it is no limit of Kafka's for which connections wait.
    fn tell_of_descriptors(&mut self) {
        let admission = &self.shared.admission;
        if admission.lacks_descriptors() && !std::mem::replace(&mut self.listeners.has_told, true) {
            let count = admission.count();
            self.shared.control().notice(format!(
                "{count} connections are all for which there are descriptors (ulimit -n): more \
                 wait until one closes"
            ));
        }
    }

    fn admit(&mut self, stream: TcpStream, peer: SocketAddr, listener: usize) {
        if !self.shared.admission.enter(listener, peer.ip()) {
            self.shared
                .counts
                .refused_connections
                .fetch_add(1, Ordering::Relaxed);
            return;
        }
        let thread = self.listeners.next_thread % self.shared.mailboxes.len();
        self.listeners.next_thread += 1;
        let message = Message::Accepted {
            stream,
            peer,
            listener,
        };
        match thread == self.index {
            true => self.on_message(message),
            false => self.shared.post(thread, message),
        }
    }

    /// Looks at a listener, or away from it: what comes waits in its backlog.
    fn listen(&mut self, number: usize, accepts: bool) {
        let Some(listener) = self.listeners.all.get_mut(number) else {
            return;
        };
        listener.accepts = accepts;
        let interest = Readiness {
            readable: accepts,
            ..Readiness::default()
        };
        let token = LISTENER_TOKEN - number as u64;
        // The descriptor is in the poller, and nothing else can fail.
        let _ = self
            .poller
            .change(listener.socket.as_raw_fd(), token, interest);
    }

    /// Looks at all listeners again but those that hold a connection still.
    pub(super) fn listen_again(&mut self) {
        self.listeners.due_ms = u64::MAX;
        for number in 0..self.listeners.len() {
            let listener = self.listeners.all.get(number);
            if listener.is_some_and(|listener| !listener.accepts) && self.let_in(number) {
                self.listen(number, true);
            }
        }
    }

    /// Admits the connection that a listener holds, if it may go on now. False: it stays held.
    fn let_in(&mut self, number: usize) -> bool {
        let Some(listener) = self.listeners.all.get_mut(number) else {
            return false;
        };
        let Some(held) = &listener.held else {
            return true;
        };
        if held.until_ms > self.now_ms {
            self.listeners.due_ms = self.listeners.due_ms.min(held.until_ms);
            return false;
        }
        // Connections of other listeners may have come meanwhile.
        if !self.shared.admission.has_room(number) {
            return false;
        }
        if let Some(held) = listener.held.take() {
            self.admit(held.stream, held.peer, number);
        }
        true
    }

    pub(super) fn count_out(&self, listener: usize, peer: SocketAddr) {
        if self.shared.admission.leave(listener, peer.ip()) {
            self.shared.post(0, Message::Room);
        }
    }
}

/// As operators write it and Kafka tells it: IPv4 also where it came in by an IPv6 socket.
fn canonical(peer: SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}
