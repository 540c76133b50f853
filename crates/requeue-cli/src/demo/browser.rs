//! Opens the dashboard in a browser, if there is somebody to look at it.

use crate::output::print_labelled;
use std::io::{self, IsTerminal};
use std::process::Stdio;
use tokio::process::Command;

/// The program that opens a URL in the browser. `None` if this is not a desktop session, or if stdout is
/// not a terminal: then a script has started the demo.
pub(super) fn opener() -> Option<&'static str> {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let has_display = is_set("DISPLAY") || is_set("WAYLAND_DISPLAY");
    choose(io::stdout().is_terminal(), cfg!(target_os = "macos"), has_display)
}

fn choose(is_terminal: bool, is_macos: bool, has_display: bool) -> Option<&'static str> {
    match (is_terminal, is_macos, has_display) {
        (true, true, _) => Some("open"),
        (true, false, true) => Some("xdg-open"),
        _ => None,
    }
}

/// Opens a URL. A failure is only noted: the URL is printed, too.
pub(super) async fn open(opener: &str, url: &str) {
    let mut command = Command::new(opener);
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Ctrl-C, which stops the demo, must not stop a browser that this starts.
    command.process_group(0);
    let problem = match command.status().await {
        Ok(status) if status.success() => return,
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    print_labelled("note", &format!("{opener} did not open a browser: {problem}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_is_opened_only_in_a_desktop_session() {
        assert_eq!(choose(true, true, false), Some("open"));
        assert_eq!(choose(true, false, true), Some("xdg-open"));
        assert_eq!(choose(true, false, false), None);
        assert_eq!(choose(false, true, true), None);
        assert_eq!(choose(false, false, true), None);
    }
}
