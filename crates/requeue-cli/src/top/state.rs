//! What `top` shows, and what keys change. Plain code: it reads no clock, no terminal and no store.

use super::columns::Column;
use super::data::{KindRow, Snapshot, Wanted, kinds_of_series};
use super::horizon::Horizon;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use requeue_jobs::{Kind, Timestamp};
use std::collections::VecDeque;

/// Number of event lines that are kept: more than fit on a screen.
const MAX_EVENT_LINES: usize = 200;

/// Maximum characters of the filter. The name of a kind has fewer.
const MAX_FILTER: usize = 128;

/// What the program has to do after a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Quit,
    Pause {
        kind: Kind,
        paused: bool,
    },
    /// Something is shown that the snapshot may not contain.
    Refresh,
}

/// What keys mean at the moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    #[default]
    Table,
    /// The filter is typed.
    Filter,
    /// Asks whether to pause or resume a kind.
    Confirm {
        kind: Kind,
        paused: bool,
    },
    Help,
}

/// Which panels are shown below the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Panels {
    pub(crate) due: bool,
    pub(crate) workers: bool,
    pub(crate) events: bool,
}

/// A store that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) error: String,
    pub(crate) since: Timestamp,
}

/// Everything that is shown.
#[derive(Debug)]
pub(crate) struct State {
    /// The URL or directory of the store.
    pub(crate) source: String,
    pub(crate) has_server: bool,
    pub(crate) colors: bool,
    /// `None` until the store was read for the first time.
    pub(crate) snapshot: Option<Snapshot>,
    /// The error of the last attempt to read the store.
    pub(crate) trouble: Option<Trouble>,
    pub(crate) mode: Mode,
    pub(crate) sort: Column,
    pub(crate) descending: bool,
    pub(crate) filter: String,
    pub(crate) horizon: Horizon,
    pub(crate) panels: Panels,
    /// The latest events, oldest first. Invariant: at most [`MAX_EVENT_LINES`], and escaped.
    pub(crate) events: VecDeque<String>,
    /// The result of the last action.
    pub(crate) message: Option<String>,
    /// The kind of the selected row.
    selected: Option<Kind>,
    /// The index of the selected row when it was last shown, for a kind that disappears.
    index: usize,
    /// The first row on the screen.
    pub(crate) first: usize,
    /// Number of rows on the screen.
    page: usize,
}

impl State {
    pub(crate) fn new(source: String, has_server: bool, colors: bool) -> Self {
        State {
            source,
            has_server,
            colors,
            snapshot: None,
            trouble: None,
            mode: Mode::Table,
            sort: Column::Ready,
            descending: true,
            filter: String::new(),
            horizon: Horizon::default(),
            panels: Panels { due: true, workers: false, events: false },
            events: VecDeque::new(),
            message: None,
            selected: None,
            index: 0,
            first: 0,
            page: 1,
        }
    }

    /// The rows of the table: filtered and sorted.
    pub(crate) fn rows(&self) -> Vec<&KindRow> {
        let kinds = self.snapshot.as_ref().map_or(&[][..], |snapshot| &snapshot.kinds);
        let filter = self.filter.to_lowercase();
        let matches = |row: &&KindRow| row.view.kind.as_str().to_lowercase().contains(&filter);
        let mut rows: Vec<&KindRow> = kinds.iter().filter(matches).collect();
        rows.sort_by(|a, b| self.sort.compare(a, b, self.descending));
        rows
    }

    /// The index of the selected row. 0 if there are no rows.
    pub(crate) fn selected(&self) -> usize {
        let rows = self.rows();
        let found = rows.iter().position(|row| Some(&row.view.kind) == self.selected.as_ref());
        found.unwrap_or(self.index.min(rows.len().saturating_sub(1)))
    }

    /// Scrolls so that the selected row is on a screen with this many rows.
    pub(crate) fn fit(&mut self, page: usize) {
        let (count, selected) = (self.rows().len(), self.selected());
        self.page = page.max(1);
        self.index = selected;
        let last_first = count.saturating_sub(self.page);
        let lowest = (selected + 1).saturating_sub(self.page);
        self.first = self.first.clamp(lowest, selected.max(lowest)).min(last_first);
    }

    /// Which parts of the next snapshot are needed.
    pub(crate) fn wanted(&self) -> Wanted {
        let rows = self.rows();
        let shown = rows.iter().skip(self.first).take(self.page);
        let shown = shown.map(|row| row.view.kind.to_string()).collect();
        let all = self.snapshot.as_ref().map_or(0, |snapshot| snapshot.kinds.len());
        Wanted {
            horizon: self.panels.due.then_some(self.horizon),
            workers: self.panels.workers,
            kinds: kinds_of_series(all, shown),
        }
    }

    pub(crate) fn show(&mut self, snapshot: Snapshot) {
        (self.snapshot, self.trouble) = (Some(snapshot), None);
    }

    /// Shows an error. It lasts since the first of several in a row.
    pub(crate) fn show_trouble(&mut self, error: String, now: Timestamp) {
        let since = self.trouble.take().map_or(now, |trouble| trouble.since);
        self.trouble = Some(Trouble { error, since });
    }

    pub(crate) fn add_event(&mut self, line: String) {
        if self.events.len() == MAX_EVENT_LINES {
            self.events.pop_front();
        }
        self.events.push_back(line);
    }

    /// Changes what is shown, and returns what the program has to do.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Option<Action> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return matches!(key.code, KeyCode::Char('c')).then_some(Action::Quit);
        }
        match std::mem::take(&mut self.mode) {
            Mode::Table => self.table_key(key.code),
            Mode::Filter => {
                self.filter_key(key.code);
                None
            }
            Mode::Confirm { kind, paused } => {
                let confirmed = matches!(key.code, KeyCode::Char('y' | 'Y'));
                confirmed.then_some(Action::Pause { kind, paused })
            }
            // Any key closes the help.
            Mode::Help => None,
        }
    }

    fn table_key(&mut self, code: KeyCode) -> Option<Action> {
        self.message = None;
        match code {
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Char('?') => self.mode = Mode::Help,
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('s') => self.sort = neighbour(self.sort, 1),
            KeyCode::Char('S') => self.sort = neighbour(self.sort, Column::ALL.len() - 1),
            KeyCode::Char('t') => (self.sort, self.descending) = (Column::Flags, true),
            KeyCode::Char('r') => self.descending = !self.descending,
            KeyCode::Char('h') => {
                self.horizon = self.horizon.next();
                return Some(Action::Refresh);
            }
            KeyCode::Char('d') => {
                self.panels.due = !self.panels.due;
                return Some(Action::Refresh);
            }
            KeyCode::Char('w') => {
                self.panels.workers = !self.panels.workers;
                return Some(Action::Refresh);
            }
            KeyCode::Char('e') => self.panels.events = !self.panels.events,
            KeyCode::Char('p') => self.ask_to_pause(),
            KeyCode::Up | KeyCode::Char('k') => self.select(self.selected().saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.select(self.selected() + 1),
            KeyCode::PageUp => self.select(self.selected().saturating_sub(self.page)),
            KeyCode::PageDown => self.select(self.selected() + self.page),
            KeyCode::Home | KeyCode::Char('g') => self.select(0),
            KeyCode::End | KeyCode::Char('G') => self.select(usize::MAX),
            _ => {}
        }
        None
    }

    fn filter_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => return,
            KeyCode::Esc => return self.filter.clear(),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) if self.filter.chars().count() < MAX_FILTER => self.filter.push(c),
            _ => {}
        }
        self.mode = Mode::Filter;
    }

    fn ask_to_pause(&mut self) {
        let rows = self.rows();
        if let Some(row) = rows.get(self.selected()) {
            let (kind, paused) = (row.view.kind.clone(), !row.view.paused);
            self.mode = Mode::Confirm { kind, paused };
        }
    }

    /// Selects a row, or the last one.
    fn select(&mut self, index: usize) {
        let rows = self.rows();
        let index = index.min(rows.len().saturating_sub(1));
        let selected = rows.get(index).map(|row| row.view.kind.clone());
        (self.index, self.selected) = (index, selected);
    }
}

/// The column that comes this many columns later, from the last on to the first.
fn neighbour(column: Column, distance: usize) -> Column {
    let at = Column::ALL.iter().position(|of_all| *of_all == column).unwrap_or(0);
    Column::ALL[(at + distance) % Column::ALL.len()]
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::columns::tests::row;
    use super::*;

    /// A state with kinds `k00`, `k01`, …, of which the first has the most ready jobs.
    pub(crate) fn state(kinds: usize) -> State {
        let mut state = State::new("http://127.0.0.1:7654".to_owned(), true, true);
        let row = |n: usize| row(&format!("k{n:02}"), (kinds - n) as u64, None);
        state.show(Snapshot { kinds: (0..kinds).map(row).collect(), ..Snapshot::default() });
        state.fit(5);
        state
    }

    pub(crate) fn press(state: &mut State, code: KeyCode) -> Option<Action> {
        state.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn type_text(state: &mut State, text: &str) {
        for c in text.chars() {
            assert_eq!(press(state, KeyCode::Char(c)), None);
        }
    }

    fn names(state: &State) -> Vec<String> {
        state.rows().iter().map(|row| row.view.kind.to_string()).collect()
    }

    #[test]
    fn the_table_scrolls_with_the_selection() {
        let mut state = state(12);
        let at = |state: &mut State, code| {
            press(state, code);
            state.fit(5);
            (state.selected(), state.first)
        };
        assert_eq!(at(&mut state, KeyCode::Up), (0, 0));
        assert_eq!(at(&mut state, KeyCode::PageDown), (5, 1));
        assert_eq!(at(&mut state, KeyCode::Down), (6, 2));
        assert_eq!(at(&mut state, KeyCode::Up), (5, 2));
        assert_eq!(at(&mut state, KeyCode::End), (11, 7));
        assert_eq!(at(&mut state, KeyCode::PageUp), (6, 6));
        assert_eq!(at(&mut state, KeyCode::Home), (0, 0));
        // A larger terminal shows no empty rows at its end.
        at(&mut state, KeyCode::End);
        state.fit(20);
        assert_eq!(state.first, 0);
    }

    #[test]
    fn the_selection_stays_on_its_kind() {
        let mut state = state(3);
        press(&mut state, KeyCode::Down);
        assert_eq!(names(&state)[state.selected()], "k01");
        press(&mut state, KeyCode::Char('r'));
        press(&mut state, KeyCode::Char('s'));
        assert_eq!((state.sort, state.descending), (Column::Leased, false));
        assert_eq!(names(&state)[state.selected()], "k01");
        // Its kind disappears: the row at the same place is selected.
        state.fit(5);
        let mut snapshot = state.snapshot.clone().unwrap();
        snapshot.kinds.truncate(1);
        state.show(snapshot);
        assert_eq!(state.selected(), 0);
        state.show(Snapshot::default());
        state.fit(5);
        assert_eq!((state.selected(), press(&mut state, KeyCode::Char('p'))), (0, None));
        assert_eq!(state.mode, Mode::Table, "there is nothing to pause");
    }

    #[test]
    fn a_filter_is_applied_while_it_is_typed() {
        let mut state = state(12);
        press(&mut state, KeyCode::Char('/'));
        type_text(&mut state, "K1q");
        assert_eq!(names(&state).len(), 0);
        press(&mut state, KeyCode::Backspace);
        assert_eq!(names(&state), ["k10", "k11"]);
        press(&mut state, KeyCode::Enter);
        assert_eq!((&state.mode, state.filter.as_str()), (&Mode::Table, "K1"));
        press(&mut state, KeyCode::Esc);
        assert_eq!(names(&state).len(), 12);
        press(&mut state, KeyCode::Char('/'));
        type_text(&mut state, &"x".repeat(1000));
        assert_eq!(state.filter.len(), MAX_FILTER);
    }

    #[test]
    fn a_kind_is_paused_after_a_confirmation() {
        let mut state = state(2);
        press(&mut state, KeyCode::Down);
        assert_eq!(press(&mut state, KeyCode::Char('p')), None);
        let kind = Kind::new("k01").unwrap();
        assert_eq!(state.mode, Mode::Confirm { kind: kind.clone(), paused: true });
        assert_eq!(press(&mut state, KeyCode::Char('q')), None, "any other key cancels");
        assert_eq!(state.mode, Mode::Table);
        press(&mut state, KeyCode::Char('p'));
        let pause = Some(Action::Pause { kind, paused: true });
        assert_eq!(press(&mut state, KeyCode::Char('y')), pause);
    }

    #[test]
    fn q_and_ctrl_c_quit_but_q_can_be_typed() {
        let mut state = state(2);
        assert_eq!(press(&mut state, KeyCode::Char('q')), Some(Action::Quit));
        press(&mut state, KeyCode::Char('/'));
        assert_eq!(press(&mut state, KeyCode::Char('q')), None);
        let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(state.key(ctrl_c), Some(Action::Quit));
        press(&mut state, KeyCode::Esc);
        press(&mut state, KeyCode::Char('?'));
        assert_eq!(state.mode, Mode::Help);
        assert_eq!(press(&mut state, KeyCode::Char('q')), None, "it closes the help");
        assert_eq!(state.mode, Mode::Table);
    }

    #[test]
    fn trouble_lasts_until_the_next_snapshot() {
        let mut state = state(1);
        let at = Timestamp::from_millis;
        state.show_trouble("refused".to_owned(), at(1));
        state.show_trouble("timed out".to_owned(), at(2));
        let expected = Trouble { error: "timed out".to_owned(), since: at(1) };
        assert_eq!(state.trouble, Some(expected));
        state.show(Snapshot::default());
        assert_eq!(state.trouble, None);
    }

    #[test]
    fn only_what_is_shown_is_wanted() {
        let mut state = state(2);
        let hour = Wanted { horizon: Some(Horizon::Hour), ..Wanted::default() };
        assert_eq!(state.wanted(), hour);
        assert_eq!(press(&mut state, KeyCode::Char('h')), Some(Action::Refresh));
        press(&mut state, KeyCode::Char('w'));
        let day = Wanted { horizon: Some(Horizon::Day), workers: true, kinds: vec![] };
        assert_eq!(state.wanted(), day);
        press(&mut state, KeyCode::Char('d'));
        assert_eq!(state.wanted().horizon, None);
        for n in 0..MAX_EVENT_LINES + 5 {
            state.add_event(n.to_string());
        }
        assert_eq!((state.events.len(), state.events[0].as_str()), (MAX_EVENT_LINES, "5"));
    }
}
