//! The terminal: raw mode and the alternate screen while `top` runs, and as it was before afterwards, also after
//! a panic.

use super::draw::draw;
use super::state::State;
use crate::error::{CliError, Result};
use crate::times;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{execute, queue};
use std::io::{self, BufWriter, Stdout};
use std::time::Duration;
use tokio::sync::mpsc;

/// How often the thread that reads keys looks whether it has to end.
const KEY_TIMEOUT: Duration = Duration::from_millis(200);

/// Bytes of a frame that are written together: more than a screen of 200 × 50 takes.
const FRAME_LEN: usize = 1 << 16;

/// The terminal while `top` runs. Dropping it restores the terminal.
pub(super) struct Screen(Terminal<CrosstermBackend<BufWriter<Stdout>>>);

impl Screen {
    pub(super) fn enter() -> Result<Self> {
        restore_on_panic();
        let entered = || {
            enable_raw_mode()?;
            execute!(io::stdout(), EnterAlternateScreen, Hide)?;
            Terminal::new(CrosstermBackend::new(BufWriter::with_capacity(FRAME_LEN, io::stdout())))
        };
        entered().map(Screen).map_err(|error| {
            restore();
            CliError::io("set up", "the terminal", &error)
        })
    }

    /// Draws a frame, which terminals that know synchronized updates show as a whole.
    pub(super) fn draw(&mut self, state: &mut State) -> Result<()> {
        let mut drawn = || {
            self.0.autoresize()?;
            let area = self.0.get_frame().area();
            // Before the update begins: after a panic, the terminal would wait for its end.
            let mut next = Buffer::empty(area);
            draw(state, times::now(), area, &mut next);
            queue!(self.0.backend_mut(), BeginSynchronizedUpdate)?;
            // After another resize, the next frame fits.
            self.0.draw(|frame| {
                if frame.area() == area {
                    *frame.buffer_mut() = next;
                }
            })?;
            execute!(self.0.backend_mut(), EndSynchronizedUpdate)
        };
        drawn().map_err(|error| CliError::io("draw on", "the terminal", &error))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores the terminal. Best effort: it may be gone.
fn restore() {
    let _ = disable_raw_mode();
    let _ = execute!(io::stdout(), EndSynchronizedUpdate, LeaveAlternateScreen, Show);
}

/// Restores the terminal before a panic is reported: the report would be drawn over, and then disappear.
fn restore_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        restore();
        report(info);
    }));
}

/// Reads keys and resizes on a thread of its own, because reading blocks. The thread ends after the receiver is
/// dropped, or if the terminal cannot be read.
pub(super) fn terminal_events() -> mpsc::Receiver<Event> {
    let (to, events) = mpsc::channel(64);
    std::thread::spawn(move || {
        while !to.is_closed() {
            let event = match event::poll(KEY_TIMEOUT) {
                Ok(false) => continue,
                Ok(true) => event::read(),
                Err(error) => Err(error),
            };
            let Ok(event) = event else { return };
            if to.blocking_send(event).is_err() {
                return;
            }
        }
    });
    events
}
