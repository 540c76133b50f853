//! What a person sees on screens of several sizes.

use super::*;
use crate::top::columns::tests::row;
use crate::top::data::{DueHistograms, KindRow, Snapshot, Trouble};
use crate::top::horizon::Horizon;
use crate::top::state::State;
use crate::top::state::tests::{press, state};
use crate::workers::Worker;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;
use ratatui::style::Color;
use requeue_http::wire::{NodeProblemJson, RecentJson, SeriesJson, StatsJson, TroubleJson};

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// Draws the state, and returns the lines of the screen.
fn screen(state: &mut State, width: u16, height: u16) -> Vec<String> {
    let buffer = buffer(state, width, height);
    let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| line(y).trim_end().to_owned()).collect()
}

fn buffer(state: &mut State, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("it needs no I/O");
    let drawn = terminal.draw(|frame| draw(state, NOW, frame.area(), frame.buffer_mut()));
    drawn.expect("it needs no I/O").buffer.clone()
}

#[track_caller]
fn assert_shows(lines: &[String], text: &str) {
    assert!(lines.iter().any(|line| line.contains(text)), "no {text:?} in\n{}", lines.join("\n"));
}

fn full_row() -> KindRow {
    let mut row = row("order.close", 12, None);
    row.view.counts.dead = 3;
    row.view.paused = true;
    row.trouble = Some(Trouble::Late);
    row.view.oldest_ready = Some(Timestamp::from_millis(NOW.as_millis() - 125_000));
    row.series = Some(SeriesJson {
        kind: Some("order.close".to_owned()),
        acked: (0..60).collect(),
        recent: RecentJson {
            seconds: 60,
            put: 600,
            acked: 90,
            failed: 3,
            lateness_p50_ms: Some(12),
            lateness_p99_ms: Some(3_400),
            ..RecentJson::default()
        },
        ..SeriesJson::default()
    });
    row
}

fn full_state() -> State {
    let mut state = state(0);
    let problem = NodeProblemJson {
        name: "disk_full".to_owned(),
        detail: Some("no space left on /data".to_owned()),
        since: "".into(),
    };
    let stats = StatsJson {
        version: "0.1.0".to_owned(),
        uptime_seconds: 7260,
        waiting_claims: 4,
        problems: vec![problem],
        trouble: vec![TroubleJson {
            name: "leases_expire".to_owned(),
            worker: Some("laptop".to_owned()),
            detail: "42 leases have expired since the worker last settled one".to_owned(),
            ..TroubleJson::default()
        }],
        ..StatsJson::default()
    };
    let worker = |name: &str, held| Worker { name: name.to_owned(), held, ..Worker::default() };
    let mut counts = vec![0; 60];
    (counts[0], counts[59]) = (2, 16);
    state.show(Snapshot {
        kinds: vec![full_row(), row("sms", 500, None)],
        stats: Some(stats),
        workers: Some(vec![worker("laptop", 1), worker("phone", 7)]),
        due: Some(DueHistograms { horizons: vec![(Horizon::Hour, counts)], later: Some(9) }),
    });
    state
}

#[test]
fn a_wide_screen_shows_everything() {
    let mut state = full_state();
    press(&mut state, KeyCode::Char('w'));
    press(&mut state, KeyCode::Char('e'));
    state.add_event("claimed  sms/a".to_owned());
    let lines = screen(&mut state, 160, 40);
    assert_eq!(lines[0], "requeue top  http://127.0.0.1:7654  version 0.1.0, up 2h 1m");
    assert_eq!(lines[1], "pending 514  ready 512  leased 0  dead 3  waiting claims 4");
    assert!(lines[2].starts_with("! problem disk_full"), "{}", lines[2]);
    assert_shows(&lines, "no space left on /data");
    assert_shows(&lines, "! laptop, leases expire: 42 leases have expired");
    assert_shows(&lines, "2 kinds, sorted by READY, descending");
    assert_shows(&lines, "READY▼");
    let row = lines.iter().find(|line| line.contains("order.close")).expect("the row");
    let cells: Vec<&str> = row.split_whitespace().take(12).collect();
    let expected =
        ["order.close", "13", "12", "0", "3", "0", "10", "1.5", "<0.1", "12ms", "3.4s", "2m"];
    assert_eq!(cells, expected, "{row}");
    assert!(row.contains("▁▂▂▃") && row.ends_with("late,paused"), "{row}");
    let unknown = lines.iter().find(|line| line.contains("sms ")).expect("the row");
    assert!(unknown.starts_with("> sms") && unknown.matches('–').count() == 6, "{unknown}");
    assert_shows(&lines, "due in the next hour: 18 jobs, 9 after a week");
    assert_shows(&lines, "+30m");
    assert_shows(&lines, "2 workers, by leases held");
    let phone = lines.iter().position(|line| line.contains("  phone")).expect("a worker");
    assert!(lines[phone].contains("7 held") && lines[phone + 1].contains("laptop"));
    assert_shows(&lines, "claimed  sms/a");
    assert_shows(&lines, "? help");
}

#[test]
fn what_needs_attention_is_first_if_asked_for_and_has_a_limit() {
    let mut state = full_state();
    press(&mut state, KeyCode::Char('w'));
    let snapshot = state.snapshot.as_mut().expect("there is one");
    let laptop = &mut snapshot.workers.as_mut().expect("there are some")[0];
    (laptop.expired, laptop.expired_in_a_row, laptop.held) = (42, 42, 0);
    let stats = snapshot.stats.as_mut().expect("there are some");
    let one = stats.trouble[0].clone();
    stats.trouble.extend(vec![one; 98]);
    let lines = screen(&mut state, 160, 40);
    assert_shows(&lines, "(+97 more)");
    let at = |text: &str| lines.iter().position(|line| line.contains(text)).expect("it is shown");
    assert!(at("order.close ") > at("> sms "), "sorted by READY");
    assert!(lines[at("  laptop")].contains("42 expired") && at("  laptop") < at("  phone"));
    press(&mut state, KeyCode::Char('t'));
    let lines = screen(&mut state, 160, 40);
    let at = |text: &str| lines.iter().position(|line| line.contains(text)).expect("it is shown");
    assert!(at("order.close ") < at("sms "), "{lines:#?}");
    assert_shows(&lines, "sorted by FLAGS, descending");
}

#[test]
fn bars_are_as_high_as_their_counts() {
    let lines = screen(&mut full_state(), 80, 30);
    let title = lines.iter().position(|line| line.contains("due in the next")).expect("a panel");
    let (top, axis) = (&lines[title + 1], &lines[title + 7]);
    assert!(top.trim_start().starts_with("16 ") && top.ends_with('█'), "{lines:#?}");
    let bottom = &lines[title + 6];
    assert_eq!(bottom.chars().nth(9), Some('▆'), "2 of 16 in six rows: {bottom}");
    assert!(axis.contains("now") && axis.ends_with("+1h"), "{axis}");
}

#[test]
fn a_small_screen_shows_what_fits() {
    let mut state = full_state();
    let lines = screen(&mut state, 60, 15);
    assert_shows(&lines, "KIND");
    assert_shows(&lines, "order.close");
    assert_shows(&lines, "paused");
    assert_shows(&lines, "due in the next hour");
    press(&mut state, KeyCode::Char('w'));
    press(&mut state, KeyCode::Char('e'));
    let lines = screen(&mut state, 60, 15);
    assert_shows(&lines, "(a panel needs more room)");
    assert_shows(&lines, "order.close");
    press(&mut state, KeyCode::Char('?'));
    let lines = screen(&mut state, 60, 15);
    assert_shows(&lines, "q  Ctrl-C                    quit");
    assert_shows(&lines, "–: unknown");
}

#[test]
fn no_size_and_no_state_make_drawing_panic() {
    let mut states = [full_state(), state(100), State::new("d".to_owned(), false, false)];
    for state in &mut states {
        for keys in ["", "we", "d", "?"] {
            keys.chars().for_each(|c| drop(press(state, KeyCode::Char(c))));
            for (width, height) in [
                (1, 1),
                (5, 30),
                (200, 2),
                (20, 5),
                (21, 6),
                (33, 9),
                (60, 15),
                (101, 17),
                (300, 90),
            ] {
                assert_eq!(screen(state, width, height).len(), usize::from(height));
            }
        }
    }
}

#[test]
fn every_row_can_be_scrolled_to() {
    let mut state = state(50);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..50 {
        for line in screen(&mut state, 80, 15) {
            seen.extend(
                line.split_whitespace().find(|word| word.starts_with('k')).map(str::to_owned),
            );
            if line.starts_with('>') {
                seen.insert(line);
            }
        }
        press(&mut state, KeyCode::Down);
    }
    for n in 0..50 {
        assert!(seen.contains(&format!("k{n:02}")), "k{n:02}");
    }
    assert!(seen.iter().any(|line| line.starts_with("> k49")), "it is selected in the end");
}

#[test]
fn errors_and_questions_are_shown() {
    let mut state = full_state();
    state.show_trouble(
        "connection refused".to_owned(),
        Timestamp::from_millis(NOW.as_millis() - 5000),
    );
    let lines = screen(&mut state, 120, 24);
    assert_shows(&lines, "(5.0s ago): connection refused");
    assert_shows(&lines, "order.close");
    press(&mut state, KeyCode::Char('p'));
    assert_shows(
        &screen(&mut state, 80, 24),
        "pause sms, so that its jobs are not handed out? y/n",
    );
    press(&mut state, KeyCode::Char('n'));
    state.message = Some("could not pause sms: permission denied".to_owned());
    assert_shows(&screen(&mut state, 80, 24), "permission denied");
    press(&mut state, KeyCode::Char('/'));
    press(&mut state, KeyCode::Char('x'));
    let lines = screen(&mut state, 80, 24);
    assert_shows(&lines, "filter: x_");
    assert_shows(&lines, "0 of 2 kinds");
    assert_shows(&lines, "no kind matches \"x\"");
}

#[test]
fn hostile_and_wide_texts_stay_in_their_place() {
    let mut state = full_state();
    press(&mut state, KeyCode::Char('w'));
    press(&mut state, KeyCode::Char('e'));
    let evil = "\u{1b}[2J\u{202e}界界界界界界界界界界界界界界界界界界界界👩‍👩‍👧‍👦e\u{301}";
    let snapshot = state.snapshot.as_mut().expect("there is one");
    let worker = Worker { name: evil.to_owned(), held: 9, ..Worker::default() };
    snapshot.workers = Some(vec![worker]);
    let stats = snapshot.stats.as_mut().expect("there are some");
    stats.version = evil.to_owned();
    stats.problems[0].detail = Some(evil.to_owned());
    state.show_trouble(evil.to_owned(), NOW);
    state.filter = evil.to_owned();
    state.message = Some(evil.to_owned());
    state.add_event(crate::output::escape(evil));
    for width in [60, 61, 80, 160] {
        let lines = screen(&mut state, width, 30);
        let hidden = |c: char| c.is_control() || c == '\u{202e}';
        assert!(!lines.iter().any(|line| line.chars().any(hidden)), "{lines:#?}");
        assert_shows(&lines, "\\u{1b}[2J");
        assert_shows(&lines, "9 held");
    }
}

#[test]
fn colours_are_left_out_without_a_loss() {
    let colors = |state: &mut State| {
        let buffer = buffer(state, 120, 30);
        let colors =
            buffer.content.iter().map(|cell| cell.fg).filter(|color| *color != Color::Reset);
        colors.collect::<Vec<_>>()
    };
    let mut state = full_state();
    assert!(colors(&mut state).contains(&Color::Red));
    let colored = screen(&mut state, 120, 30);
    state.colors = false;
    assert_eq!(colors(&mut state), []);
    assert_eq!(screen(&mut state, 120, 30), colored);
}
