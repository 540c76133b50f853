use super::super::QueueMetrics;
use super::table::Queue;
use std::collections::{BTreeMap, BTreeSet};

/// The number of priorities per queue that get a series of their own, which Prometheus keeps as
/// long as its data. This is controller-runtime's limit.
const MAX_PRIORITIES: usize = 25;

/// controller-runtime's label value in place of a priority if there are too many.
const TOO_MANY: &str = "exceeded_cardinality_limit";

/// The priorities seen so far, by queue. A priority without keys is still exported, with the
/// value 0: a gauge that disappears looks like one that was not scraped.
#[derive(Default)]
pub(super) struct Priorities {
    seen: BTreeMap<String, BTreeSet<i32>>,
}

impl Priorities {
    /// Returns the depths to export for all queues that report. Other queues are forgotten.
    pub(super) fn show(&mut self, reports: Vec<QueueMetrics>) -> Vec<Queue> {
        self.seen.retain(|name, _| reports.iter().any(|report| report.name == *name));
        let queue = |report| Queue { depths: self.depths(&report), report };
        reports.into_iter().map(queue).collect()
    }

    /// Returns the depth by priority, or one depth without a priority if the queue has none.
    fn depths(&mut self, report: &QueueMetrics) -> Vec<(String, u64)> {
        let now: BTreeMap<i32, u64> = report.depth_by_priority.iter().copied().collect();
        if now.is_empty() && !self.seen.contains_key(&report.name) {
            return vec![(String::new(), report.depth)];
        }
        let seen = self.seen.entry(report.name.clone()).or_default();
        // Beyond the limit, priorities are not distinguished. One more than the limit is enough
        // to know.
        let room = (MAX_PRIORITIES + 1).saturating_sub(seen.len());
        let new: Vec<i32> = now.keys().copied().filter(|p| !seen.contains(p)).take(room).collect();
        seen.extend(new);
        if seen.len() > MAX_PRIORITIES {
            return vec![(TOO_MANY.to_owned(), report.depth)];
        }
        let depth = |priority| now.get(priority).copied().unwrap_or_default();
        seen.iter().map(|priority| (priority.to_string(), depth(priority))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_without_priorities_has_one_depth_under_none() {
        let report = QueueMetrics { depth: 7, ..QueueMetrics::default() };
        assert_eq!(shown(&mut Priorities::default(), vec![report]), depths(&[("", 7)]));
    }

    #[test]
    fn a_priority_whose_last_key_left_is_shown_at_0_until_its_queue_is_gone() {
        let mut priorities = Priorities::default();
        let mut show = |now| shown(&mut priorities, vec![report(now)]);
        assert_eq!(show(&[(-1, 2), (10, 1)]), depths(&[("-1", 2), ("10", 1)]));
        assert_eq!(show(&[(10, 1)]), depths(&[("-1", 0), ("10", 1)]));
        assert_eq!(show(&[]), depths(&[("-1", 0), ("10", 0)]));
        shown(&mut priorities, Vec::new());
        assert_eq!(shown(&mut priorities, vec![report(&[])]), depths(&[("", 0)]));
    }

    #[test]
    fn more_priorities_than_the_limit_are_shown_as_one() {
        let mut priorities = Priorities::default();
        let many: Vec<(i32, u64)> = (0..25).map(|priority| (priority, 1)).collect();
        assert_eq!(shown(&mut priorities, vec![report(&many)]).len(), 25);
        let one_more = shown(&mut priorities, vec![report(&[(25, 3), (26, 4)])]);
        assert_eq!(one_more, depths(&[("exceeded_cardinality_limit", 7)]));
    }

    fn report(depth_by_priority: &[(i32, u64)]) -> QueueMetrics {
        QueueMetrics {
            depth: depth_by_priority.iter().map(|(_, depth)| depth).sum(),
            depth_by_priority: depth_by_priority.to_vec(),
            ..QueueMetrics::default()
        }
    }

    fn shown(priorities: &mut Priorities, reports: Vec<QueueMetrics>) -> Vec<(String, u64)> {
        priorities.show(reports).into_iter().flat_map(|queue| queue.depths).collect()
    }

    fn depths(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
        expected.iter().map(|&(priority, depth)| (priority.to_owned(), depth)).collect()
    }
}
