//! Key and channel names. `docs/redis-keys.md` describes the contents of the keys.

use requeue_jobs::Kind;

/// The keys of a kind, all in one slot of a Cluster.
pub(crate) struct Keys {
    /// The part of the keys in braces, which determines the Cluster slot.
    pub(crate) tag: String,
    /// In the order in which scripts take them.
    pub(crate) all: [String; KEYS.len()],
}

/// The names of the keys and their Redis types, in the order in which scripts take them.
const KEYS: [(&str, &str); 10] = [
    ("due", "sorted set"),
    ("leased", "sorted set"),
    ("dead", "sorted set"),
    ("done", "sorted set"),
    ("job", "hash"),
    ("lease", "hash"),
    ("next", "hash"),
    ("past", "hash"),
    ("meta", "hash"),
    ("schedules", "hash"),
];

impl Keys {
    pub(crate) fn of(prefix: &str, kind: &Kind) -> Keys {
        let tag = format!("{prefix}:{kind}");
        let all = KEYS.map(|(name, _)| format!("{{{tag}}}:{name}"));
        Keys { tag, all }
    }

    /// The keys with their Redis types.
    pub(crate) fn typed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.all.iter().map(String::as_str).zip(KEYS.map(|(_, of)| of))
    }

    /// The sorted sets of pending, leased, dead and done jobs.
    pub(crate) fn lists(&self) -> [&str; 4] {
        let [due, leased, dead, done, ..] = &self.all;
        [due, leased, dead, done]
    }

    pub(crate) fn job(&self) -> &str {
        &self.all[4]
    }

    pub(crate) fn lease(&self) -> &str {
        &self.all[5]
    }

    pub(crate) fn next(&self) -> &str {
        &self.all[6]
    }

    pub(crate) fn past(&self) -> &str {
        &self.all[7]
    }

    pub(crate) fn meta(&self) -> &str {
        &self.all[8]
    }

    pub(crate) fn schedules(&self) -> &str {
        &self.all[9]
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

/// The key of the numbers of the registrations of kinds.
pub(crate) fn registered(prefix: &str) -> String {
    format!("{{{prefix}}}:registered")
}

/// The key of what is left of removed kinds.
pub(crate) fn removed(prefix: &str) -> String {
    format!("{{{prefix}}}:removed")
}

/// The key of the set of kinds of a deployment.
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
