//! epoll and eventfd, and what threads ask of the scheduler: the one file that a
//! second operating system replaces.
#![expect(
    unsafe_code,
    reason = "epoll, eventfd, sendfile and the scheduler are system calls"
)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Events to wait for, and events that happened. Errors and hang-ups are always reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    pub readable: bool,
    pub writable: bool,
    /// The peer will send no more.
    pub peer_closed: bool,
    /// The connection is gone in both directions.
    pub hung_up: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub token: u64,
    pub readiness: Readiness,
}

pub struct Poller {
    epoll: OwnedFd,
    buffer: Vec<libc::epoll_event>,
}

impl Poller {
    pub fn new() -> io::Result<Poller> {
        // SAFETY: a plain system call; the descriptor is owned from here on.
        let epoll = unsafe {
            let descriptor = check(libc::epoll_create1(libc::EPOLL_CLOEXEC))?;
            OwnedFd::from_raw_fd(descriptor)
        };
        Ok(Poller {
            epoll,
            buffer: vec![libc::epoll_event { events: 0, u64: 0 }; 256],
        })
    }

    /// Level-triggered, as `change` too.
    pub fn add(&self, descriptor: RawFd, token: u64, interest: Readiness) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, descriptor, token, bits(interest))
    }

    /// Edge-triggered: each `wake` is an event once, and there is nothing to read.
    pub fn add_wake_up(&self, wake_up: &WakeUp, token: u64) -> io::Result<()> {
        let events = libc::EPOLLIN | libc::EPOLLET;
        self.control(libc::EPOLL_CTL_ADD, wake_up.0.as_raw_fd(), token, events)
    }

    pub fn change(&self, descriptor: RawFd, token: u64, interest: Readiness) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, descriptor, token, bits(interest))
    }

    pub fn remove(&self, descriptor: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, descriptor, 0, 0)
    }

    fn control(
        &self,
        operation: libc::c_int,
        descriptor: RawFd,
        token: u64,
        events: libc::c_int,
    ) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: events as u32,
            u64: token,
        };
        let epoll = self.epoll.as_raw_fd();
        // SAFETY: the event lives through the call.
        check(unsafe { libc::epoll_ctl(epoll, operation, descriptor, &mut event) })?;
        Ok(())
    }

    /// Waits for events, at most `timeout_ms` milliseconds (-1: for ever), and puts them in
    /// place of what `events` held.
    pub fn wait(&mut self, timeout_ms: i32, events: &mut Vec<Event>) -> io::Result<()> {
        events.clear();
        // SAFETY: the buffer is as long as said and lives through the call.
        let result = check(unsafe {
            libc::epoll_wait(
                self.epoll.as_raw_fd(),
                self.buffer.as_mut_ptr(),
                self.buffer.len() as libc::c_int,
                timeout_ms,
            )
        });
        let count = match result {
            Ok(count) => count as usize,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        for event in self.buffer.iter().take(count) {
            let bits = event.events as libc::c_int;
            events.push(Event {
                token: event.u64,
                readiness: Readiness {
                    readable: bits & libc::EPOLLIN != 0,
                    writable: bits & libc::EPOLLOUT != 0,
                    peer_closed: bits & libc::EPOLLRDHUP != 0,
                    hung_up: bits & (libc::EPOLLHUP | libc::EPOLLERR) != 0,
                },
            });
        }
        Ok(())
    }
}

fn bits(interest: Readiness) -> libc::c_int {
    let mut events = 0;
    if interest.readable {
        events |= libc::EPOLLIN;
    }
    if interest.writable {
        events |= libc::EPOLLOUT;
    }
    if interest.peer_closed {
        events |= libc::EPOLLRDHUP;
    }
    events
}

/// Wakes a `Poller` that has it, from any thread.
pub struct WakeUp(OwnedFd);

impl WakeUp {
    pub fn new() -> io::Result<WakeUp> {
        // SAFETY: a plain system call; the descriptor is owned from here on.
        let descriptor = unsafe {
            let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
            OwnedFd::from_raw_fd(check(libc::eventfd(0, flags))?)
        };
        Ok(WakeUp(descriptor))
    }

    /// Counts one up, which takes longer than any machine to come to the end of the counter.
    pub fn wake(&self) {
        let one: u64 = 1;
        // SAFETY: the eight bytes of a counter in the machine's order, as eventfd wants them.
        let _ = unsafe {
            libc::write(
                self.0.as_raw_fd(),
                std::ptr::from_ref(&one).cast(),
                size_of::<u64>(),
            )
        };
    }
}

/// Sends up to `count` bytes of a file from `position` on; 0 means that the file is shorter.
pub fn sendfile(socket: RawFd, file: RawFd, position: u64, count: usize) -> io::Result<usize> {
    let mut position = position as libc::off_t;
    // SAFETY: both descriptors are open for the length of the call; the offset is a local.
    let sent = unsafe { libc::sendfile(socket, file, &mut position, count) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Bytes that have come in at a socket and were not received yet.
pub fn unread_bytes(socket: RawFd) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: the number lives through the call.
    check(unsafe { libc::ioctl(socket, libc::FIONREAD, &mut count) })?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Waits for a socket to have room, or to be closed. False: it has had none for `timeout_ms`.
pub fn wait_for_room(socket: RawFd, timeout_ms: i32) -> io::Result<bool> {
    let mut socket = libc::pollfd {
        fd: socket,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one entry, which lives as long as the call.
    match check(unsafe { libc::poll(&mut socket, 1, timeout_ms) }) {
        Ok(ready) => Ok(ready > 0),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
        Err(error) => Err(error),
    }
}

thread_local! {
    static THREAD_ID: i32 = {
        // SAFETY: a plain system call that cannot fail.
        unsafe { libc::gettid() }
    };
}

/// The id of this thread, as `is_blocked` takes it: asked for once a thread.
pub fn thread_id() -> i32 {
    THREAD_ID.with(|id| *id)
}

/// Asks the scheduler to run this thread soon after it wakes, and in return not for long at a time:
/// beside threads that compute, a request waits for one slice less. From Linux 6.12 on; older ones
/// take no notice, and where it is refused the thread is one among others. Priority stays as it is.
pub fn ask_for_short_slices(slice: Duration) {
    // SAFETY: all zeros is a valid value of this plain struct.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::sched_attr>();
    // SAFETY: the struct outlives the call and is as large as said.
    let known = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &mut attributes, size, 0) };
    if known != 0 || attributes.sched_policy != libc::SCHED_OTHER as u32 {
        return;
    }
    attributes.sched_runtime = slice.as_nanos() as u64;
    // SAFETY: as above; the struct names its size itself.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &attributes, 0) };
}

/// A thread of this process sleeps, in a system call or for a lock: it neither runs nor waits
/// for a processor. One that is gone counts as sleeping.
pub fn is_blocked(thread_id: i32) -> bool {
    let path = format!("/proc/self/task/{thread_id}/stat");
    let stat = std::fs::read_to_string(path).unwrap_or_default();
    // `id (name) S …`; the name may hold anything but ends at the last bracket.
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
    !state.starts_with('R')
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}
