//! The power is cut at every operation in turn.

use super::*;
use std::collections::BTreeMap;

/// The groups that the log must contain after a cut, and those that it may.
#[derive(Default)]
struct Model {
    /// All that was ever appended.
    tried: BTreeMap<u64, Vec<u8>>,
    /// The last group that was acknowledged, or read at open.
    safe: u64,
    /// Groups up to here are in the tables.
    after: u64,
    /// Whether the last group is written again on opening.
    prove: bool,
    /// Whether a failed write may have destroyed groups, which are not written again yet.
    torn: bool,
}

impl Model {
    /// Opens the log and checks all that it has.
    fn open(&mut self, disk: &SimulatedDisk) -> Result<Log, DiskError> {
        let (mut log, groups) = open_after(disk, self.after)?;
        assert!(log.last_group() >= self.safe, "{} < {}", log.last_group(), self.safe);
        let expected: Groups = self
            .tried
            .range(self.after + 1..log.last_group() + 1)
            .map(|(group, payload)| (*group, payload.clone()))
            .collect();
        assert_eq!(groups, expected);
        self.tried.split_off(&(log.last_group() + 1));
        // The last group is written again with the next, or by `retry`.
        self.safe = self.safe.max(log.last_group().saturating_sub(1));
        if self.prove {
            log.retry()?;
            self.safe = log.last_group();
        }
        Ok(log)
    }

    /// Opens the log until that succeeds; the old one is not used any more.
    fn reopen(&mut self, disk: &SimulatedDisk) -> Result<Log, DiskError> {
        self.open(disk).or_else(|_| {
            disk.heal();
            self.open(disk)
        })
    }

    /// Appends a group. It fails with this chance, in percent, and destroys the blocks it touches.
    fn append(
        &mut self,
        disk: &SimulatedDisk,
        log: &mut Log,
        fails: usize,
        random: &mut Random,
    ) -> Result<(), DiskError> {
        let of = *random.pick(&[Purpose::NewJobs, Purpose::ExistingJobs]);
        let length = *random.pick(&[0, 10, 100, 1000, 1500, 6000]);
        log.reserve(of, length)?;
        let group = log.last_group() + 1;
        let mut payload = random.number().to_le_bytes().repeat(length.div_ceil(8));
        payload.truncate(length);
        self.tried.insert(group, payload.clone());
        if random.chance(fails) {
            disk.tear(*random.pick(&[512, 4096]));
            disk.fail(*random.pick(&[Op::Write, Op::Sync]), "log-", 0, 1);
            self.torn = true;
        }
        match log.append(&payload, of) {
            Ok(number) => assert_eq!(number, group),
            Err(AppendError::InDoubt(error)) => return Err(error),
            Err(AppendError::Refused(error)) => panic!("refused after all: {error}"),
        }
        (self.safe, self.torn) = (group, false);
        Ok(())
    }

    /// One random step.
    fn step(
        &mut self,
        disk: &SimulatedDisk,
        log: &mut Log,
        random: &mut Random,
    ) -> Result<(), DiskError> {
        match random.below(20) {
            0 => {
                log.close()?;
                self.safe = log.last_group();
                *log = self.reopen(disk)?;
            }
            // Killed.
            1 => *log = self.reopen(disk)?,
            2 | 3 => log.roll(),
            4 | 5 => {
                self.after += random.below((self.safe - self.after) as usize + 1) as u64;
                log.release(self.after);
            }
            6 | 7 => log.spares().fill()?,
            8 => {
                let op = *random.pick(&[Op::Write, Op::Sync, Op::SyncNames, Op::Rename]);
                disk.fail(op, "", random.below(3) as u64, 1);
            }
            _ => self.append(disk, log, 10, random)?,
        }
        Ok(())
    }
}

/// Random steps, until the power is cut.
fn work(disk: &SimulatedDisk, model: &mut Model, random: &mut Random) -> Result<(), DiskError> {
    let mut log = model.open(disk)?;
    for _ in 0..40 {
        if let Err(error) = model.step(disk, &mut log, random) {
            if disk.is_cut() {
                return Err(error);
            }
            disk.heal();
            log.retry()?;
            (model.safe, model.torn) = (log.last_group(), false);
        }
    }
    disk.heal();
    log.close()?;
    model.safe = log.last_group();
    Ok(())
}

/// Works until a cut. Returns the number of operations.
fn check(seed: u64, cut_at: u64) -> u64 {
    let (mut disk, prove) = (SimulatedDisk::new(), seed.is_multiple_of(2));
    let mut model = Model { prove, ..Model::default() };
    disk.cut_at(cut_at);
    let worked = work(&disk, &mut model, &mut Random::new(seed));
    assert_eq!(worked.is_err(), disk.is_cut(), "{worked:?}");
    let operations = disk.operations();
    if model.torn {
        // The power was cut after another fault, and before that was repaired.
        return operations;
    }
    // What was found after one cut, or by another process, is not lost by the next cut.
    let mut random = Random::new(seed ^ cut_at);
    for _ in 0..3 {
        if random.chance(50) {
            disk = disk.after_kill();
            disk.cut_at(disk.operations() + random.below(12) as u64);
            let worked =
                model.open(&disk).and_then(|mut log| model.append(&disk, &mut log, 0, &mut random));
            assert!(worked.is_ok() || disk.is_cut(), "{worked:?}");
        }
        disk = disk.after_cut(random.number());
        let mut log = model.open(&disk).unwrap();
        if random.chance(70) {
            model.append(&disk, &mut log, 0, &mut random).unwrap();
        }
    }
    operations
}

#[test]
fn every_acknowledged_group_survives_a_cut_at_any_operation() {
    check_seeds("REQUEUE_LOG_CUTS", 10, |seed| {
        for cut_at in 0.. {
            if check(seed, cut_at) <= cut_at {
                return;
            }
        }
    });
}
