//! One Markdown file, parsed: its headings with their anchors, its links, and its HTML.

use crate::slug::Slugs;
use pulldown_cmark::{
    CodeBlockKind, CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html,
};

/// A parsed page.
#[derive(Debug)]
pub(crate) struct Page<'a> {
    /// Its path in the repository, with `/`.
    pub(crate) path: String,
    /// The text of its first heading.
    pub(crate) title: String,
    /// All headings, in order.
    pub(crate) headings: Vec<Heading>,
    events: Vec<Event<'a>>,
}

/// A heading of a page.
#[derive(Debug)]
pub(crate) struct Heading {
    pub(crate) level: HeadingLevel,
    pub(crate) text: String,
    pub(crate) anchor: String,
}

/// What becomes of a link or an image of a page.
#[derive(Debug)]
pub(crate) enum Rewritten {
    /// It leads there.
    To(String),
    /// Only its text is shown.
    TextOnly,
}

impl<'a> Page<'a> {
    /// Parses a file. Fails if it has no heading, or HTML other than comments: the site contains no
    /// markup except its own.
    pub(crate) fn parse(path: &str, text: &'a str) -> Result<Page<'a>, String> {
        let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
        let mut events = Vec::new();
        // A block of HTML arrives line by line.
        let mut block = String::new();
        for event in Parser::new_ext(text, options) {
            match event {
                Event::Start(Tag::HtmlBlock) => block.clear(),
                Event::Html(line) => block.push_str(&line),
                Event::End(TagEnd::HtmlBlock) => only_comment(path, &block)?,
                Event::InlineHtml(html) => only_comment(path, &html)?,
                event => events.push(event),
            }
        }
        let headings = headings(&events);
        let title =
            headings.first().ok_or_else(|| format!("{path}: there is no heading"))?.text.clone();
        Ok(Page { path: path.to_owned(), title, headings, events })
    }

    /// Whether a heading has this anchor.
    pub(crate) fn has_anchor(&self, anchor: &str) -> bool {
        self.headings.iter().any(|heading| heading.anchor == anchor)
    }

    /// The destinations of the page's links, as they are written.
    pub(crate) fn links(&self) -> impl Iterator<Item = &str> {
        self.events.iter().filter_map(|event| match event {
            Event::Start(Tag::Link { dest_url, .. }) => Some(dest_url.as_ref()),
            _ => None,
        })
    }

    /// The destinations of the page's images, as they are written.
    pub(crate) fn images(&self) -> impl Iterator<Item = &str> {
        self.events.iter().filter_map(|event| match event {
            Event::Start(Tag::Image { dest_url, .. }) => Some(dest_url.as_ref()),
            _ => None,
        })
    }

    /// The links below each heading of the second level: the section's text, and each link with its
    /// own text.
    pub(crate) fn sections(&self) -> Vec<(String, Vec<(String, String)>)> {
        let mut sections = Vec::new();
        let mut headings = self.headings.iter();
        let mut link: Option<(String, String)> = None;
        for event in &self.events {
            match event {
                Event::Start(Tag::Heading { .. }) => {
                    let heading = headings.next().expect("they were collected from these events");
                    if heading.level == HeadingLevel::H2 {
                        sections.push((heading.text.clone(), Vec::new()));
                    }
                }
                Event::Start(Tag::Link { dest_url, .. }) => {
                    link = Some((dest_url.to_string(), String::new()));
                }
                Event::Text(text) | Event::Code(text) => {
                    if let Some((_, link_text)) = &mut link {
                        link_text.push_str(text);
                    }
                }
                Event::End(TagEnd::Link) => {
                    if let (Some((_, links)), Some(link)) = (sections.last_mut(), link.take()) {
                        links.push(link);
                    }
                }
                _ => {}
            }
        }
        sections
    }

    /// The body of the page as HTML. `rewrite` maps the destination of every link and image.
    pub(crate) fn html(&self, rewrite: impl Fn(&str) -> Rewritten) -> String {
        let mut headings = self.headings.iter();
        let mut out = Vec::with_capacity(self.events.len());
        // For each open link, whether it is kept.
        let mut kept = Vec::new();
        for event in &self.events {
            match event {
                Event::Start(Tag::Heading { level, .. }) => {
                    let anchor =
                        &headings.next().expect("they were collected from these events").anchor;
                    out.push(markup(format!("<{level} id=\"{anchor}\">")));
                    out.push(markup(format!(
                        "<a class=\"anchor\" href=\"#{anchor}\" aria-label=\"Link to this section\">#</a>"
                    )));
                }
                Event::End(TagEnd::Heading(level)) => out.push(markup(format!("</{level}>\n"))),
                Event::Start(Tag::Table(_)) => {
                    out.push(markup("<div class=\"table\" tabindex=\"0\">".to_owned()));
                    out.push(event.clone());
                }
                Event::End(TagEnd::Table) => {
                    out.push(event.clone());
                    out.push(markup("</div>\n".to_owned()));
                }
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                    let language = info.split([',', ' ']).next().unwrap_or_default().to_owned();
                    let kind = CodeBlockKind::Fenced(language.into());
                    out.push(Event::Start(Tag::CodeBlock(kind)));
                }
                Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
                    let rewritten = rewrite(dest_url);
                    kept.push(matches!(rewritten, Rewritten::To(_)));
                    if let Rewritten::To(to) = rewritten {
                        let (link_type, title, id) = (*link_type, title.clone(), id.clone());
                        out.push(Event::Start(Tag::Link {
                            link_type,
                            dest_url: to.into(),
                            title,
                            id,
                        }));
                    }
                }
                Event::End(TagEnd::Link) => {
                    if kept.pop() == Some(true) {
                        out.push(event.clone());
                    }
                }
                Event::Start(Tag::Image { link_type, dest_url, title, id }) => {
                    let dest_url: CowStr<'_> = match rewrite(dest_url) {
                        Rewritten::To(to) => to.into(),
                        Rewritten::TextOnly => dest_url.clone(),
                    };
                    let (link_type, title, id) = (*link_type, title.clone(), id.clone());
                    out.push(Event::Start(Tag::Image { link_type, dest_url, title, id }));
                }
                event => out.push(event.clone()),
            }
        }
        let mut body = String::new();
        html::push_html(&mut body, out.into_iter());
        body
    }
}

fn only_comment(path: &str, html: &str) -> Result<(), String> {
    let html = html.trim();
    let comment = html.strip_prefix("<!--").and_then(|rest| rest.strip_suffix("-->"));
    match comment {
        Some(inside) if !inside.contains("-->") => Ok(()),
        _ => Err(format!("{path}: HTML is not supported: {html}")),
    }
}

fn markup(html: String) -> Event<'static> {
    Event::Html(html.into())
}

fn headings(events: &[Event<'_>]) -> Vec<Heading> {
    let mut slugs = Slugs::default();
    let mut headings = Vec::new();
    let mut open: Option<(HeadingLevel, String)> = None;
    for event in events {
        match event {
            Event::Start(Tag::Heading { level, .. }) => open = Some((*level, String::new())),
            Event::Text(text) | Event::Code(text) => {
                if let Some((_, heading)) = &mut open {
                    heading.push_str(text);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let (level, text) = open.take().expect("a heading that ends has begun");
                let anchor = slugs.next(&text);
                headings.push(Heading { level, text, anchor });
            }
            _ => {}
        }
    }
    headings
}
