//! Medians and ratios, as lines of JSON for programs and a table for people.

use crate::driver::Series;
use requeue_bench::Unit;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// The first line: the origin of the figures.
#[derive(Serialize)]
pub(crate) struct Origin {
    pub(crate) suite: String,
    pub(crate) machine: String,
    pub(crate) cores: usize,
    pub(crate) commit: String,
    /// The Cargo profile with which requeue was built.
    pub(crate) profile: String,
    pub(crate) quick: bool,
    /// The versions of the systems that are not built here.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) versions: BTreeMap<&'static str, String>,
}

#[derive(Serialize)]
struct MeasurementLine<'a> {
    suite: &'a str,
    workload: &'a str,
    system: &'a str,
    unit: Unit,
    runs: Vec<f64>,
    median: f64,
}

#[derive(Serialize)]
struct ComparisonLine<'a> {
    suite: &'a str,
    workload: &'a str,
    system: &'a str,
    peer: &'a str,
    ratio: f64,
    low: f64,
    high: f64,
}

/// Theirs ÷ ours, or ours ÷ theirs for rates, round by round: above 1, requeue is better.
struct Comparison<'a> {
    ours: &'a Series,
    peer: &'a Series,
    ratio: f64,
    low: f64,
    high: f64,
}

impl<'a> Comparison<'a> {
    fn new(ours: &'a Series, peer: &'a Series) -> Self {
        let rates = ours.unit.more_is_better();
        let rounds = ours.runs.iter().zip(&peer.runs);
        let ratio =
            |(ours, theirs): (&f64, &f64)| if rates { ours / theirs } else { theirs / ours };
        let mut ratios: Vec<f64> = rounds.map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        let (low, high) = (ratios[0], ratios[ratios.len() - 1]);
        Comparison { ours, peer, ratio: median(&ratios), low, high }
    }
}

fn comparisons(series: &[Series]) -> Vec<Comparison<'_>> {
    let ours = series.iter().filter(|series| series.system.is_ours());
    let peers_of = |ours: &Series| {
        let (workload, system) = (ours.workload.clone(), ours.system);
        series.iter().filter(move |s| s.workload == workload && system.compares_with(s.system))
    };
    ours.flat_map(|ours| peers_of(ours).map(move |peer| Comparison::new(ours, peer))).collect()
}

/// There is no ratio if one of the two is 0.
fn is_ratio(ratio: f64) -> bool {
    ratio.is_normal()
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        0 => (values[middle - 1] + values[middle]) / 2.0,
        _ => values[middle],
    }
}

/// Rounds to the significant digits.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Writes the lines to `path`, replacing an existing file.
pub(crate) fn write(path: &Path, origin: &Origin, series: &[Series]) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let suite = origin.suite.as_str();
    line(&mut file, origin)?;
    for series in series {
        let measurement = MeasurementLine {
            suite,
            workload: &series.workload,
            system: series.system.name(),
            unit: series.unit,
            runs: series.runs.iter().copied().map(rounded).collect(),
            median: rounded(median(&series.runs)),
        };
        line(&mut file, &measurement)?;
    }
    for Comparison { ours, peer, ratio, low, high } in comparisons(series) {
        if !is_ratio(low) || !is_ratio(high) {
            continue;
        }
        let comparison = ComparisonLine {
            suite,
            workload: &ours.workload,
            system: ours.system.name(),
            peer: peer.system.name(),
            ratio: rounded(ratio),
            low: rounded(low),
            high: rounded(high),
        };
        line(&mut file, &comparison)?;
    }
    file.flush()
}

fn line(file: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *file, value)?;
    writeln!(file)
}

/// Prints requeue compared with each other system, or alone if there is none. The systems of a
/// workload without requeue are printed one by one.
pub(crate) fn print(series: &[Series]) {
    println!(
        "{:<22}{:<18}{:>10}  {:<18}{:>10}{:>8}   {}",
        "workload", "system", "ours", "peer", "theirs", "ratio", "low–high"
    );
    let comparisons = comparisons(series);
    let has_ours = |workload: &str| {
        series.iter().any(|series| series.workload == workload && series.system.is_ours())
    };
    let is_shown = |series: &&Series| series.system.is_ours() || !has_ours(&series.workload);
    for ours in series.iter().filter(is_shown) {
        let mut start =
            format!("{:<22}{:<18}{:>10}", ours.workload, ours.system.name(), median_of(ours));
        let with_peers = comparisons
            .iter()
            .filter(|c| c.ours.workload == ours.workload && c.ours.system == ours.system);
        let mut alone = true;
        for Comparison { peer, ratio, low, high, .. } in with_peers {
            let (name, theirs) = (peer.system.name(), median_of(peer));
            let ratios = is_ratio(*low) && is_ratio(*high);
            let range = if ratios { format!("{low:.2}–{high:.2}") } else { String::new() };
            let ratio = if ratios { format!("{ratio:.2}") } else { "–".to_owned() };
            let line = format!("{start}  {name:<18}{theirs:>10}{ratio:>8}   {range}");
            println!("{}", line.trim_end());
            start = " ".repeat(50);
            alone = false;
        }
        if alone {
            println!("{start}");
        }
    }
}

fn median_of(series: &Series) -> String {
    shown(median(&series.runs), series.unit)
}

/// Returns a value with its unit, as people write it.
pub(crate) fn shown(value: f64, unit: Unit) -> String {
    const MIB: f64 = (1 << 20) as f64;
    match unit {
        Unit::Bytes if value >= MIB => format!("{} MiB", plain(value / MIB)),
        Unit::Bytes if value >= 1e4 => format!("{} kB", plain(value / 1e3)),
        Unit::Bytes => format!("{} B", plain(value)),
        Unit::Calls => plain(value),
        Unit::Jobs => format!("{value:.0} jobs"),
        Unit::Rate if value < 1e3 => format!("{value:.0} /s"),
        Unit::Rate => format!("{} k/s", plain(value / 1e3)),
        Unit::Ns if value == 0.0 => "0".to_owned(),
        Unit::Ns if value < 1e3 => format!("{} ns", plain(value)),
        Unit::Ns if value < 1e6 => format!("{} µs", plain(value / 1e3)),
        Unit::Ns if value < 1e9 => format!("{} ms", plain(value / 1e6)),
        Unit::Ns => format!("{} s", plain(value / 1e9)),
    }
}

/// Returns a number with two or three significant digits.
pub(crate) fn plain(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        ..0.095 => format!("{value:.3}"),
        ..0.995 => format!("{value:.2}"),
        ..19.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::System;

    fn series(system: System, runs: &[f64]) -> Series {
        Series { workload: "cycle-1".to_owned(), system, unit: Unit::Ns, runs: runs.to_vec() }
    }

    #[test]
    fn a_ratio_is_taken_within_each_round() {
        let (ours, peer) = (
            series(System::Requeue, &[10.0, 20.0, 10.0]),
            series(System::ClientGo, &[30.0, 60.0, 50.0]),
        );
        let Comparison { ratio, low, high, .. } = Comparison::new(&ours, &peer);
        assert_eq!((ratio, low, high), (3.0, 3.0, 5.0));
    }

    #[test]
    fn of_rates_the_higher_one_is_better() {
        let rate = |system, runs| Series { unit: Unit::Rate, ..series(system, runs) };
        let (ours, peer) = (rate(System::Requeue, &[20.0]), rate(System::Fjall, &[10.0]));
        assert_eq!(Comparison::new(&ours, &peer).ratio, 2.0);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
    }

    #[test]
    fn each_of_ours_meets_each_peer() {
        let all = [
            series(System::Requeue, &[1.0]),
            series(System::RequeueString, &[1.0]),
            series(System::ClientGo, &[2.0]),
        ];
        assert_eq!(comparisons(&all).len(), 2);
    }
}
