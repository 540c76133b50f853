//! Renders the documentation of the repository as a static site.
//!
//! Pages are plain HTML with a stylesheet of their own: no script, and no request to another host. Anchors of headings
//! are those of GitHub, so the same links work in both places. Rendering fails if a link between pages, or
//! its anchor, is broken.

mod link;
mod page;
mod site;
mod slug;
mod template;

pub use site::{Files, Site, Sources, read_sources};
