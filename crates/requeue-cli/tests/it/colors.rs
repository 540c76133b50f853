//! Colours: on a terminal that has them, and nowhere else.

use crate::commands::claim;
use crate::support::Dir;
use crate::terminal::Tty;
use vt100::Color;

const SIZE: (u16, u16) = (120, 30);
const RED: Color = Color::Idx(1);
const GREEN: Color = Color::Idx(2);
const YELLOW: Color = Color::Idx(3);

/// A kind `mail` with a dead and a ready job, and a paused kind `sms`.
fn with_jobs() -> Dir {
    let dir = Dir::served();
    dir.ask(&["put", "mail", "a", "x"]).ok();
    dir.ask(&["bury", &claim(&dir, "mail"), "--error", "mailbox full"]).ok();
    dir.ask(&["put", "mail", "b", "\u{1b}[35mx"]).ok();
    dir.ask(&["put", "sms", "c", "x"]).ok();
    dir.ask(&["pause", "sms"]).ok();
    dir
}

fn start(dir: &Dir, args: &[&str], variables: &[(&str, &str)]) -> Tty {
    Tty::start_with(dir, &[args, &dir.place()[..]].concat(), SIZE, variables)
}

#[test]
fn states_and_errors_have_colours_on_a_terminal() {
    let dir = with_jobs();
    let list = start(&dir, &["ls", "mail"], &[]);
    assert_eq!((list.color("dead"), list.color("ready")), (RED, GREEN));
    assert_eq!((list.color("mailbox full"), list.color("STATE")), (RED, Color::Default));
    // The colour of a body is not interpreted.
    assert_eq!(list.color("\\u{1b}[35mx"), Color::Default);
    let stats = start(&dir, &["stats"], &[]);
    assert_eq!(stats.color("paused"), YELLOW);
    let job = start(&dir, &["get", "mail", "a"], &[]);
    assert_eq!((job.color("dead"), job.color("body")), (RED, Color::Default));
    let error = start(&dir, &["get", "mail", "none"], &[]);
    assert_eq!((error.color("error:"), error.color("there is no job")), (RED, Color::Default));
    let mut watch = start(&dir, &["stats", "--watch"], &[]);
    assert_eq!(watch.color("paused"), YELLOW);
    watch.press("\u{3}");
    assert_eq!(watch.exit_code(), Some(0));
}

#[test]
fn there_are_no_colours_if_they_are_not_wanted_or_there_is_no_terminal() {
    let dir = with_jobs();
    for variable in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let list = start(&dir, &["ls", "mail"], &[variable]);
        assert_eq!(list.color("dead"), Color::Default, "{variable:?}");
        let error = start(&dir, &["get", "mail", "none"], &[variable]);
        assert_eq!(error.color("error:"), Color::Default, "{variable:?}");
    }
    let list = start(&dir, &["ls", "mail"], &[("NO_COLOR", "")]);
    assert_eq!(list.color("dead"), RED, "an empty variable is not set");
    for args in [&["ls", "mail"][..], &["stats"], &["get", "mail", "a"], &["get", "mail", "none"]] {
        let done = dir.ask(args);
        assert!(!done.out.contains('\u{1b}') && !done.err.contains('\u{1b}'), "{done:#?}");
        // JSON never has any.
        let json = start(&dir, &[args, &["--json"]].concat(), &[]);
        json.shows("}");
        assert_eq!(json.color("\""), Color::Default);
    }
}
