//! Runs the program in a pseudo-terminal, and reads the screen that a person would see.

use crate::support::{Dir, until};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};

/// A program in a terminal. Killed on drop.
pub(crate) struct Tty {
    child: Child,
    master: File,
    /// Keeps the terminal open after the program has ended.
    slave: File,
    screen: Arc<Mutex<vt100::Parser>>,
}

impl Tty {
    /// Starts the program in a terminal of this size.
    pub(crate) fn start(dir: &Dir, args: &[&str], size: (u16, u16)) -> Self {
        Tty::start_with(dir, args, size, &[])
    }

    /// Does the same with these environment variables.
    pub(crate) fn start_with(
        dir: &Dir,
        args: &[&str],
        (columns, rows): (u16, u16),
        variables: &[(&str, &str)],
    ) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
        grantpt(&master).expect("it is ours");
        unlockpt(&master).expect("it is ours");
        let name = ptsname(&master, Vec::new()).expect("it has a name");
        let name = name.to_str().expect("it is ASCII");
        let slave = OpenOptions::new().read(true).write(true).open(name).expect("the other end");
        set_size(&master, columns, rows);
        // setsid(1) makes it the controlling terminal, which receives the signal of a resize.
        let mut command = dir.clean(Command::new("setsid"));
        command.args(["--ctty", env!("CARGO_BIN_EXE_requeue")]).args(args);
        command.env("TERM", "xterm-256color").env_remove("NO_COLOR");
        command.envs(variables.iter().copied());
        let end = || Stdio::from(slave.try_clone().expect("it can be cloned"));
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().expect("it starts");
        let screen = Arc::new(Mutex::new(vt100::Parser::new(not_0(rows), not_0(columns), 0)));
        let (mut from, to) = (File::from(dup(&master)), Arc::clone(&screen));
        std::thread::spawn(move || {
            let (mut bytes, mut frames) = ([0; 4096], Frames::default());
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                let complete = frames.push(&bytes[..count]);
                to.lock().expect("no panic").process(&complete);
            }
        });
        Tty { child, master: File::from(master), slave, screen }
    }

    fn parser(&self) -> MutexGuard<'_, vt100::Parser> {
        self.screen.lock().expect("no panic")
    }

    /// What is on the screen, line by line.
    pub(crate) fn text(&self) -> String {
        self.parser().screen().contents()
    }

    /// Waits until the screen is as it should be. Panics with the screen if it never is.
    #[track_caller]
    pub(crate) fn await_screen(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let found = crate::support::eventually(|| Some(self.text()).filter(|text| is_so(text)));
        found.unwrap_or_else(|| panic!("no {what} on the screen:\n{}", self.text()))
    }

    /// Waits until the screen shows a text.
    #[track_caller]
    pub(crate) fn shows(&self, text: &str) -> String {
        self.await_screen(text, |screen| screen.contains(text))
    }

    /// The line of the screen that contains a text.
    #[track_caller]
    pub(crate) fn line(&self, text: &str) -> String {
        let screen = self.shows(text);
        let line = screen.lines().find(|line| line.contains(text));
        line.expect("the screen shows it").to_owned()
    }

    /// The colour of a text on the screen, at the first place where it is.
    #[track_caller]
    pub(crate) fn color(&self, text: &str) -> vt100::Color {
        self.shows(text);
        let parser = self.parser();
        let screen = parser.screen();
        let rows = screen.rows(0, screen.size().1.get()).enumerate();
        let found = rows.filter_map(|(row, line)| {
            let column = line[..line.find(text)?].chars().count();
            screen.cell(u16::try_from(row).ok()?, u16::try_from(column).ok()?)
        });
        found.map(vt100::Cell::fgcolor).next().expect("the screen shows it")
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("it is open");
    }

    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        self.parser().screen_mut().set_size(not_0(rows), not_0(columns));
        set_size(&self.master, columns, rows);
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether the terminal is as it was before a full-screen program: with its own screen and cursor, and with
    /// echo.
    pub(crate) fn is_restored(&self) -> bool {
        let modes = tcgetattr(&self.slave).expect("it is a terminal").local_modes;
        let parser = self.parser();
        let screen = parser.screen();
        modes.contains(LocalModes::ECHO | LocalModes::ICANON)
            && !screen.alternate_screen()
            && !screen.hide_cursor()
    }

    /// Waits until the program exits. Returns the exit code.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        until("the program to exit", || self.child.try_wait().expect("it is ours")).code()
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The output of a program, of which half a frame is held back: a synchronized update is shown as a whole.
#[derive(Default)]
struct Frames(Vec<u8>);

impl Frames {
    const BEGIN: &[u8] = b"\x1b[?2026h";
    const END: &[u8] = b"\x1b[?2026l";

    /// Adds output, and returns what can be shown.
    fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.0.extend_from_slice(bytes);
        let last = |mark: &[u8]| self.0.windows(mark.len()).rposition(|window| window == mark);
        let (begin, end) = (last(Self::BEGIN), last(Self::END));
        let complete = match begin {
            Some(begin) if end < Some(begin) => begin,
            // The mark may be cut in two.
            _ => {
                let cut = |len: &usize| self.0.ends_with(&Self::BEGIN[..*len]);
                self.0.len() - (1..Self::BEGIN.len()).rev().find(cut).unwrap_or(0)
            }
        };
        self.0.drain(..complete).collect()
    }
}

fn not_0(number: u16) -> NonZero<u16> {
    NonZero::new(number).expect("it is not 0")
}

fn dup(fd: &OwnedFd) -> OwnedFd {
    fd.try_clone().expect("it can be cloned")
}

fn set_size(master: &impl std::os::fd::AsFd, columns: u16, rows: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(master, size).expect("it is a terminal");
}
