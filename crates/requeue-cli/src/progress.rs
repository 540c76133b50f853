//! Progress bars, on stderr, where that is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A progress bar.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    pub(crate) fn jobs() -> Self {
        Bar::of("{bar:40} {pos} of {len} jobs, {per_sec}, {eta} left")
    }

    pub(crate) fn bytes() -> Self {
        Bar::of("{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left")
    }

    fn of(template: &str) -> Self {
        // Draws nothing if stderr is not a terminal.
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        bar.set_style(ProgressStyle::with_template(template).expect("the template is valid"));
        Bar(bar)
    }

    /// Shows that `done` of `total` is done.
    pub(crate) fn at(&self, done: u64, total: u64) {
        self.0.set_length(total.max(done));
        self.0.set_position(done);
    }

    /// Removes the bar from the screen. The command prints its result next.
    pub(crate) fn end(self) {
        self.0.finish_and_clear();
    }
}
