//! Key and channel names. `docs/redis-keys.md` describes the contents of the keys.

use requeue_jobs::Kind;
use requeue_jobs::limits::MAX_PRIORITY;

/// The keys of a kind, all in one slot of a Cluster.
pub(crate) struct Keys {
    /// The part of the keys in braces, which determines the Cluster slot.
    pub(crate) tag: String,
    /// In the order in which scripts take them. Those after the first nine exist only in layout 2.
    pub(crate) all: Vec<String>,
}

const NAMES: [&str; 9] =
    ["due", "leased", "dead", "job", "lease", "next", "past", "meta", "schedules"];

/// The Redis types of the keys, in the same order, and the commands that count their entries.
pub(crate) const TYPES: [(&str, &str); 9] = {
    let (list, hash) = (("sorted set", "ZCARD"), ("hash", "HLEN"));
    [list, list, list, hash, hash, hash, hash, hash, hash]
};

impl Keys {
    pub(crate) fn of(prefix: &str, kind: &Kind) -> Keys {
        let tag = format!("{prefix}:{kind}");
        let all = NAMES.iter().map(|name| format!("{{{tag}}}:{name}")).collect();
        Keys { tag, all }
    }

    /// Adds the keys of layout 2. A Cluster that moves a slot rejects a script whose keys are on both
    /// nodes, but only if it has got all of them.
    pub(crate) fn with_layout_2(mut self) -> Keys {
        for list in [0, 1] {
            let levels = (0..=MAX_PRIORITY).map(|level| format!("{}{level}", self.all[list]));
            let levels: Vec<_> = levels.collect();
            self.all.extend(levels);
        }
        self.all.push(format!("{{{}}}:done", self.tag));
        self
    }

    /// Whether the keys of layout 2 are among them.
    pub(crate) fn has_layout_2(&self) -> bool {
        self.all.len() > NAMES.len()
    }

    /// The lists of pending, leased, dead and done jobs, given the priorities that the kind uses, as
    /// digits: the field `levels` in `meta`. `None`: the kind has layout 1.
    pub(crate) fn lists(&self, levels: Option<&str>) -> [Vec<String>; 4] {
        let (due, leased, dead) = (&self.all[0], &self.all[1], vec![self.all[2].clone()]);
        let Some(levels) = levels else {
            return [vec![due.clone()], vec![leased.clone()], dead, Vec::new()];
        };
        let by_level = |list: &str| levels.chars().map(|level| format!("{list}{level}")).collect();
        [by_level(due), by_level(leased), dead, vec![format!("{{{}}}:done", self.tag)]]
    }

    pub(crate) fn job(&self) -> &str {
        &self.all[3]
    }

    pub(crate) fn lease(&self) -> &str {
        &self.all[4]
    }

    pub(crate) fn next(&self) -> &str {
        &self.all[5]
    }

    pub(crate) fn past(&self) -> &str {
        &self.all[6]
    }

    pub(crate) fn meta(&self) -> &str {
        &self.all[7]
    }

    pub(crate) fn schedules(&self) -> &str {
        &self.all[8]
    }
}

/// The channel on which clients that wait for a kind are woken.
pub(crate) fn channel(prefix: &str, kind: &Kind) -> String {
    format!("{{{prefix}:{kind}}}:wake")
}

/// Returns the kind of a channel.
pub(crate) fn kind_of_channel<'a>(prefix: &str, channel: &'a str) -> Option<&'a str> {
    let rest = channel.strip_prefix('{')?.strip_prefix(prefix)?.strip_prefix(':')?;
    rest.strip_suffix("}:wake")
}

/// The key of the set of kinds of a deployment.
pub(crate) fn registered(prefix: &str) -> String {
    format!("{{{prefix}}}:registered")
}

pub(crate) fn removed(prefix: &str) -> String {
    format!("{{{prefix}}}:removed")
}

pub(crate) fn kinds(prefix: &str) -> String {
    format!("{{{prefix}}}:kinds")
}

/// The key with the format of a deployment.
pub(crate) fn format(prefix: &str) -> String {
    format!("{{{prefix}}}:format")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_is_of_its_kind_and_of_no_other_deployment() {
        let kind = Kind::new("order.close").expect("a valid kind");
        let channel = channel("shop", &kind);
        assert_eq!(kind_of_channel("shop", &channel), Some("order.close"));
        assert_eq!(kind_of_channel("sho", &channel), None);
        assert_eq!(channel, "{shop:order.close}:wake");
    }
}
