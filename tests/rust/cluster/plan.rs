//! What a seed is about: sizes, times and chances, drawn before anything happens.

use super::faults::Fault;
use super::planted::Planted;
use crate::random::Random;

#[derive(Clone, Debug)]
pub struct Plan {
    pub brokers: i32,
    pub partitions: usize,
    pub replication: usize,
    pub min_isr: usize,
    /// `kafkalite.acks.fsync=group`: acknowledged is on disk. Else as Kafka's brokers are.
    pub is_durable: bool,
    pub events: u64,
    pub delay_ms_max: i64,
    pub late_per_mille: u64,
    pub late_ms_max: i64,
    pub loss_per_mille: u64,
    pub twice_per_mille: u64,
    /// Metadata reaches a broker so much later, at most.
    pub metadata_ms_max: i64,
    pub fsync_ms_max: i64,
    pub session_ms: i64,
    pub heartbeat_ms: i64,
    pub lag_ms: i64,
    pub fetch_wait_ms: i64,
    pub checkpoint_ms: i64,
    pub segment_bytes: u64,
    pub producers: usize,
    pub consumers: usize,
    pub produce_pause_ms: i64,
    pub faults: Vec<Fault>,
    pub fault_pause_ms: i64,
    /// Answers to followers are read from the file when they leave, as Kafka's are.
    pub reads_late: bool,
}

impl Plan {
    /// Without faults, three brokers and one partition: what a story begins with.
    pub fn quiet() -> Plan {
        Plan {
            brokers: 3,
            partitions: 1,
            replication: 3,
            min_isr: 2,
            is_durable: true,
            events: 0,
            delay_ms_max: 1,
            late_per_mille: 0,
            late_ms_max: 100,
            loss_per_mille: 0,
            twice_per_mille: 0,
            metadata_ms_max: 2,
            fsync_ms_max: 2,
            session_ms: 2_000,
            heartbeat_ms: 500,
            lag_ms: 1_500,
            fetch_wait_ms: 300,
            checkpoint_ms: 2_000,
            segment_bytes: 4_096,
            producers: 0,
            consumers: 0,
            produce_pause_ms: 50,
            faults: Vec::new(),
            fault_pause_ms: 1_000,
            reads_late: false,
        }
    }

    pub fn draw(random: &mut Random, planted: Option<Planted>) -> Plan {
        let pick =
            |random: &mut Random, from: &[i64]| from[random.below(from.len() as u64) as usize];
        let brokers = pick(random, &[3, 3, 4, 5]) as i32;
        let replication = if random.below(4) == 0 {
            brokers.min(4) as usize
        } else {
            3
        };
        let is_rough = random.below(10) < 7;
        let faults = Fault::draw(random);
        let mut plan = Plan {
            brokers,
            partitions: pick(random, &[1, 1, 2, 3]) as usize,
            replication,
            min_isr: pick(random, &[1, 2, 2, 2, 2, 3]) as usize,
            is_durable: random.below(10) < 6,
            events: 500 + random.below(2_500),
            delay_ms_max: pick(random, &[1, 5, 30]),
            late_per_mille: if is_rough {
                pick(random, &[0, 10, 60]) as u64
            } else {
                0
            },
            late_ms_max: pick(random, &[200, 1_000, 4_000]),
            loss_per_mille: if is_rough {
                pick(random, &[0, 5, 30]) as u64
            } else {
                0
            },
            twice_per_mille: if is_rough {
                pick(random, &[0, 20, 100]) as u64
            } else {
                0
            },
            metadata_ms_max: pick(random, &[2, 50, 600]),
            fsync_ms_max: pick(random, &[2, 20, 100]),
            session_ms: pick(random, &[1_000, 2_000]),
            heartbeat_ms: 300,
            lag_ms: pick(random, &[500, 1_500, 3_000]),
            fetch_wait_ms: pick(random, &[50, 300]),
            checkpoint_ms: pick(random, &[300, 2_000]),
            segment_bytes: pick(random, &[512, 2_048, 1 << 20]) as u64,
            producers: 1 + random.below(4) as usize,
            consumers: 1 + random.below(2) as usize,
            produce_pause_ms: pick(random, &[10, 50, 200]),
            faults,
            fault_pause_ms: pick(random, &[150, 400, 1_000]),
            reads_late: random.below(2) == 0,
        };
        if let Some(planted) = planted {
            planted.adapt(&mut plan);
        }
        plan
    }

    /// One of them may fail, or replicas move from one to the other.
    pub fn has_two_directories(&self) -> bool {
        let needs_two = |fault: &Fault| matches!(fault, Fault::DirectoryFailure | Fault::Move);
        self.faults.iter().any(needs_two)
    }

    /// Replicas of each partition, by index.
    pub fn replicas(&self) -> Vec<Vec<i32>> {
        let brokers = self.brokers as usize;
        let replicas =
            |partition| (0..self.replication).map(move |each| (partition + each) % brokers);
        (0..self.partitions)
            .map(|partition| replicas(partition).map(|at| at as i32 + 1).collect())
            .collect()
    }
}
