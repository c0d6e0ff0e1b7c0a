//! The world of a simulation: one queue of events, one clock, one random generator;
//! brokers, the controller and clients are reached through it, over a network that delays,
//! loses, repeats and can be cut.
//!
//! ```text
//! seed ─► Plan ─► producers, consumers ──┐   calls: delay, loss, cut pairs     ┌─► brokers (`broker.rs`): the engine
//!            └──► faults (`faults.rs`) ──┴────────────────────────────────────┴─► the controller (`controller.rs`)
//!                                             after each event: `checker.rs`
//! ```
//! Each step is an event, so that a death, a cut or another's step can come between any
//! two. An event may belong to a process of a broker: with that process it goes, and while
//! it is paused the event waits.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::rc::Rc;

use super::broker::Broker;
use super::checker::Checker;
use super::clients::{Consumer, Producer};
use super::controller::{Controller, Election};
use super::plan::Plan;
use super::planted::Planted;
use crate::random::Random;

/// The place of the controller in the network; brokers have their ids, clients
/// numbers from `CLIENT` on.
pub const CONTROLLER: i32 = 0;
pub const CLIENT: i32 = 100;

/// So long after the faults have ended everything is at rest, milliseconds.
const REST_MS_MAX: i64 = 90_000;
/// How long a call to a broker that is not there takes to fail, milliseconds.
const REFUSED_MS: i64 = 2;

/// A process of a broker: its number and which one of its processes.
pub type Owner = Option<(i32, u64)>;

type Step = Box<dyn FnOnce(&mut World)>;

struct Due {
    at_ms: i64,
    number: u64,
    owner: Owner,
    step: Step,
}

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        self.number == other.number
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        (self.at_ms, self.number).cmp(&(other.at_ms, other.number))
    }
}

pub struct World {
    /// Milliseconds since the beginning.
    pub now_ms: i64,
    pub random: Random,
    pub plan: Plan,
    pub planted: Option<Planted>,
    pub trace: Trace,
    pub event_count: u64,
    queue: BinaryHeap<Reverse<Due>>,
    made: u64,
    /// Who does not reach whom.
    pub cuts: BTreeSet<(i32, i32)>,
    pub controller: Controller,
    /// Brokers that wait for metadata beyond a version.
    pub pulls: Vec<(i64, Reply<i64>)>,
    pub brokers: BTreeMap<i32, Broker>,
    pub producers: Vec<Producer>,
    pub consumers: Vec<Consumer>,
    pub checker: Checker,
    /// The faults have ended.
    pub is_calm: bool,
    /// Nothing is sent any more.
    pub is_over: bool,
    pub is_checked: bool,
    pub values: u64,
    /// How often what has happened, so that a simulation that does nothing is noticed.
    pub seen: BTreeMap<&'static str, u64>,
}

/// Answers a call; only the first answer arrives.
pub type Reply<T> = Box<dyn FnOnce(&mut World, T)>;

impl World {
    pub fn new(seed: u64, planted: Option<Planted>, is_traced: bool) -> World {
        let mut random = Random::new(seed);
        let plan = Plan::draw(&mut random, planted);
        World::of(plan, random, planted, is_traced)
    }

    pub fn of(plan: Plan, random: Random, planted: Option<Planted>, is_traced: bool) -> World {
        let mut controller = Controller::new(plan.replicas(), plan.min_isr, plan.session_ms);
        controller.planted = planted;
        let brokers = (1..=plan.brokers).map(|id| (id, Broker::new(id, &plan)));
        let mut world = World {
            now_ms: 0,
            random,
            planted,
            trace: Trace::new(is_traced),
            event_count: 0,
            queue: BinaryHeap::new(),
            made: 0,
            cuts: BTreeSet::new(),
            controller,
            pulls: Vec::new(),
            brokers: brokers.collect(),
            producers: Vec::new(),
            consumers: Vec::new(),
            checker: Checker::new(&plan),
            plan,
            is_calm: false,
            is_over: false,
            is_checked: true,
            values: 0,
            seen: BTreeMap::new(),
        };
        let plan = format!("{:?}", world.plan);
        world.note(|| plan);
        world
    }

    // --- events
    // -----------------------------------------------------------------------------------

    pub fn note(&mut self, sentence: impl FnOnce() -> String) {
        self.trace.add(self.now_ms, sentence);
    }

    pub fn see(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    pub fn owner(&self, id: i32) -> Owner {
        self.brokers.get(&id).map(|broker| (id, broker.life))
    }

    pub fn at(&mut self, at_ms: i64, owner: Owner, step: impl FnOnce(&mut World) + 'static) {
        self.made += 1;
        self.queue.push(Reverse(Due {
            at_ms,
            number: self.made,
            owner,
            step: Box::new(step),
        }));
    }

    /// A step of nobody's process, or of a broker's present one.
    pub fn after(&mut self, delay_ms: i64, id: i32, step: impl FnOnce(&mut World) + 'static) {
        let owner = self.owner(id);
        self.at(self.now_ms + delay_ms, owner, step);
    }

    pub fn draw(&mut self, low: i64, high: i64) -> i64 {
        low + self.random.below((high - low + 1) as u64) as i64
    }

    /// True in so many of a thousand cases.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.random.below(1_000) < per_mille
    }

    /// Takes one step and looks at what it has done. False: there is none.
    pub fn step(&mut self) -> bool {
        let Some(Reverse(due)) = self.queue.pop() else {
            return false;
        };
        self.now_ms = self.now_ms.max(due.at_ms);
        if let Some((id, life)) = due.owner {
            let broker = &self.brokers[&id];
            if broker.life != life {
                return true;
            }
            if broker.paused_until_ms > self.now_ms {
                let until_ms = broker.paused_until_ms;
                self.at(until_ms, due.owner, due.step);
                return true;
            }
        }
        self.event_count += 1;
        let version = self.controller.version();
        (due.step)(self);
        if self.trace.is_on {
            self.note_metadata(version);
        }
        if let Some(planted) = self.planted {
            planted.after_event(self);
        }
        self.settle();
        self.check();
        true
    }

    /// What the controller has changed since a version.
    fn note_metadata(&mut self, since: i64) {
        for version in since + 1..=self.controller.version() {
            let (old, new) = (self.controller.at(version - 1), self.controller.at(version));
            for (index, state) in new.partitions.iter().enumerate() {
                if old.partitions.get(index) != Some(state) {
                    let sentence = format!("version {version}: t-{index} {state}");
                    self.note(|| sentence);
                }
            }
            for (id, known) in &new.brokers {
                if old.brokers.get(id) != Some(known) {
                    let sentence = format!("version {version}: broker {id} {known}");
                    self.note(|| sentence);
                }
            }
        }
    }

    /// The whole of it, as its plan says.
    pub fn run(&mut self) {
        self.start_all();
        self.start_clients();
        self.after(self.plan.fault_pause_ms, CONTROLLER, World::strike);
        while self.event_count < self.plan.events && self.step() {}
        self.rest();
    }

    /// Starts all brokers and the timers of the controller.
    pub fn start_all(&mut self) {
        for id in 1..=self.plan.brokers {
            self.start_broker(id);
        }
        self.after(0, CONTROLLER, World::expire_sessions);
    }

    fn expire_sessions(&mut self) {
        self.controller.expire_sessions(self.now_ms);
        self.after(self.plan.session_ms / 8, CONTROLLER, World::expire_sessions);
    }

    /// Runs for so many milliseconds.
    pub fn run_for(&mut self, ms: i64) {
        let end_ms = self.now_ms + ms;
        while self
            .queue
            .peek()
            .is_some_and(|Reverse(due)| due.at_ms <= end_ms)
        {
            self.step();
        }
        self.now_ms = end_ms;
    }

    /// Runs until that holds. Panics where it never does.
    pub fn run_until(&mut self, what: &str, mut holds: impl FnMut(&World) -> bool) {
        let end_ms = self.now_ms + REST_MS_MAX;
        while !holds(self) {
            let goes_on = self.step() && self.now_ms < end_ms;
            assert!(goes_on, "{}\nnever: {what}", self.trace.end().join("\n"));
        }
    }

    /// Faults end, clients finish, all converges, and everything is compared.
    pub fn rest(&mut self) {
        self.note(|| "the faults end".to_owned());
        self.is_calm = true;
        self.cuts.clear();
        self.heal();
        self.after(15_000, CONTROLLER, World::elect_uncleanly);
        let end_ms = self.now_ms + REST_MS_MAX;
        while self.now_ms < end_ms && !self.is_at_rest() && self.step() {}
        self.is_over = true;
        self.check_end();
    }

    /// What an operator does where nobody may be elected any more.
    fn elect_uncleanly(&mut self) {
        for index in 0..self.plan.partitions {
            let state = &self.controller.metadata().partitions[index];
            if state.isr.is_empty() && state.elr.is_empty() {
                self.controller.elect(index, Election::Unclean);
            }
        }
    }

    // --- the network
    // ------------------------------------------------------------------------------

    pub fn is_cut(&self, from: i32, to: i32) -> bool {
        self.cuts.contains(&(from, to))
    }

    fn delay_ms(&mut self) -> i64 {
        if !self.is_calm && self.chance(self.plan.late_per_mille) {
            return self.draw(50, self.plan.late_ms_max);
        }
        self.draw(0, self.plan.delay_ms_max)
    }

    /// `from` asks `to`, which `serve`s it in an event of its own, perhaps twice; `then` gets the
    /// answer, or `None` when that has not come within the time. A process that is gone is asked
    /// nothing and told nothing.
    pub fn call<T: 'static>(
        &mut self,
        (from, to): (i32, i32),
        timeout_ms: i64,
        serve: impl Fn(&mut World, Reply<T>) + 'static,
        then: impl FnOnce(&mut World, Option<T>) + 'static,
    ) {
        let then: Rc<RefCell<Option<_>>> = Rc::new(RefCell::new(Some(then)));
        let waits = then.clone();
        let is_there = self
            .brokers
            .get(&to)
            .is_none_or(|broker| broker.process.is_some());
        let timeout_ms = if is_there { timeout_ms } else { REFUSED_MS };
        self.after(timeout_ms, from, move |world| {
            let waits = waits.borrow_mut().take();
            if let Some(then) = waits {
                then(world, None);
            }
        });
        let is_lost = !self.is_calm && self.chance(self.plan.loss_per_mille);
        if !is_there || is_lost || self.is_cut(from, to) {
            return;
        }
        let serve = Rc::new(serve);
        let is_twice = !self.is_calm && self.chance(self.plan.twice_per_mille);
        let asker = self.owner(from);
        for _ in 0..1 + u32::from(is_twice) {
            let (serve, then) = (serve.clone(), then.clone());
            let delay_ms = self.delay_ms();
            self.after(delay_ms, to, move |world| {
                if !world.is_cut(from, to) {
                    let reply = reply_to(then, asker, (from, to));
                    serve(world, reply);
                }
            });
        }
    }
}

fn reply_to<T: 'static, F: FnOnce(&mut World, Option<T>) + 'static>(
    then: Rc<RefCell<Option<F>>>,
    asker: Owner,
    (from, to): (i32, i32),
) -> Reply<T> {
    Box::new(move |world, answer| {
        let is_lost = !world.is_calm && world.chance(world.plan.loss_per_mille);
        if is_lost || world.is_cut(to, from) {
            return;
        }
        let at_ms = world.now_ms + world.delay_ms();
        world.at(at_ms, asker, move |world| {
            if world.is_cut(to, from) {
                return;
            }
            let waits = then.borrow_mut().take();
            if let Some(then) = waits {
                then(world, Some(answer));
            }
        });
    })
}

/// Lines of a failing seed that are shown.
const LINES_MAX: usize = 150;

/// The steps in words.
#[derive(Default)]
pub struct Trace {
    pub is_on: bool,
    lines: Vec<String>,
}

impl Trace {
    pub fn new(is_on: bool) -> Trace {
        Trace {
            is_on,
            lines: Vec::new(),
        }
    }

    /// A step; the sentence is made only where somebody reads it.
    pub fn add(&mut self, at_ms: i64, sentence: impl FnOnce() -> String) {
        if self.is_on {
            self.lines.push(format!("{at_ms:>7} ms  {}", sentence()));
        }
    }

    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// The first line, which is the plan, and the last ones.
    pub fn end(&self) -> Vec<String> {
        let last = self.lines.len().saturating_sub(LINES_MAX).max(1);
        let mut shown: Vec<String> = self.lines.iter().take(1).cloned().collect();
        shown.extend(self.lines.iter().skip(last).cloned());
        shown
    }
}
