//! What every page of the site has around its text: head, navigation, stylesheet. No script, and nothing that is
//! loaded from elsewhere.

use crate::link;
use crate::page::Page;
use pulldown_cmark::HeadingLevel;
use std::fmt::Write;

/// The name of the stylesheet in the site.
pub(crate) const STYLE_FILE: &str = "style.css";
/// The stylesheet.
pub(crate) const STYLE: &str = include_str!("style.css");

/// A group of pages in the navigation.
#[derive(Debug)]
pub(crate) struct NavSection {
    pub(crate) title: String,
    pub(crate) pages: Vec<NavEntry>,
}

/// A page in the navigation.
#[derive(Debug)]
pub(crate) struct NavEntry {
    /// The file of the page in the site.
    pub(crate) output: String,
    pub(crate) text: String,
}

/// The whole HTML file of a page.
pub(crate) fn page(page: &Page<'_>, output: &str, navigation: &[NavSection], body: &str) -> String {
    let title = if output == "index.html" {
        "requeue documentation".to_owned()
    } else {
        format!("{} · requeue", page.title)
    };
    format!(
        "<!doctype html>\n\
         <html lang=\"en\">\n\
         <head>\n\
         <meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n\
         <link rel=\"stylesheet\" href=\"{style}\">\n\
         </head>\n\
         <body>\n\
         <header><a href=\"{index}\">requeue</a> <a class=\"to-navigation\" href=\"#navigation\">All pages</a></header>\n\
         <main>\n{body}</main>\n\
         {navigation}\
         </body>\n\
         </html>\n",
        title = escape(&title),
        style = link::relative(output, STYLE_FILE),
        index = link::relative(output, "index.html"),
        navigation = navigation_html(page, output, navigation),
    )
}

/// The list of all pages, with the sections of this one below its entry.
fn navigation_html(page: &Page<'_>, output: &str, sections: &[NavSection]) -> String {
    let mut html = String::from("<nav id=\"navigation\" aria-label=\"Pages\">\n");
    for NavSection { title, pages } in sections {
        html += &format!("<h2>{}</h2>\n<ul>\n", escape(title));
        for entry in pages {
            let here = entry.output == output;
            let current = if here { " aria-current=\"page\"" } else { "" };
            let href = escape(&link::relative(output, &entry.output));
            html += &format!("<li><a href=\"{href}\"{current}>{}</a>", escape(&entry.text));
            if here {
                html += &contents(page);
            }
            html += "</li>\n";
        }
        html += "</ul>\n";
    }
    html + "</nav>\n"
}

/// The sections of the page itself.
fn contents(page: &Page<'_>) -> String {
    let mut items = String::new();
    for heading in page.headings.iter().filter(|heading| heading.level == HeadingLevel::H2) {
        write!(items, "<li><a href=\"#{}\">{}</a></li>", heading.anchor, escape(&heading.text))
            .expect("a string takes everything");
    }
    if items.is_empty() { items } else { format!("\n<ul>{items}</ul>") }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
