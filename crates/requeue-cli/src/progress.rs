//! Progress bars, on stderr, where that is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How far something long has come.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    pub(crate) fn jobs() -> Self {
        Bar::of("{bar:40} {pos} of {len} jobs, {per_sec}, {eta} left")
    }

    pub(crate) fn bytes() -> Self {
        Bar::of("{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left")
    }

    fn of(template: &str) -> Self {
        // Hidden where nobody looks: into a file it would be noise.
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        bar.set_style(ProgressStyle::with_template(template).expect("the template is fine"));
        Bar(bar)
    }

    pub(crate) fn at(&self, done: u64, total: u64) {
        self.0.set_length(total.max(done));
        self.0.set_position(done);
    }

    /// Takes it off the screen: what follows says how it ended.
    pub(crate) fn end(self) {
        self.0.finish_and_clear();
    }
}
