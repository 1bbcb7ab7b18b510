//! Files of the web page, embedded from `page/`. There is no build step, and nothing is loaded from
//! elsewhere.
//!
//! ```text
//!   app.js   routes, token                             dom.js     elements, tables, number formats
//!   api.js   commands of the daemon                    action.js  buttons that run a command
//!   pools.js, health.js, datasets.js, dataset.js, browse.js, volumes.js, cache.js, history.js    the views
//! ```
//!
//! Idea: every view is a command's output, and every button shows the command it runs.

/// A file of the page.
pub struct File {
    path: &'static str,
    /// Content-Type value.
    pub content_type: &'static str,
    /// Content.
    pub content: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

macro_rules! files {
    ($(($path:literal, $type:expr, $file:literal)),* $(,)?) => {
        [$(File { path: $path, content_type: $type, content: include_bytes!(concat!("page/", $file)) }),*]
    };
}

const IMAGE: &str = "image/svg+xml";

static FILES: [File; 15] = files![
    ("/", HTML, "index.html"),
    ("/page/style.css", STYLE, "style.css"),
    ("/page/icon.svg", IMAGE, "icon.svg"),
    ("/page/app.js", SCRIPT, "app.js"),
    ("/page/api.js", SCRIPT, "api.js"),
    ("/page/dom.js", SCRIPT, "dom.js"),
    ("/page/action.js", SCRIPT, "action.js"),
    ("/page/pools.js", SCRIPT, "pools.js"),
    ("/page/health.js", SCRIPT, "health.js"),
    ("/page/datasets.js", SCRIPT, "datasets.js"),
    ("/page/dataset.js", SCRIPT, "dataset.js"),
    ("/page/browse.js", SCRIPT, "browse.js"),
    ("/page/volumes.js", SCRIPT, "volumes.js"),
    ("/page/cache.js", SCRIPT, "cache.js"),
    ("/page/history.js", SCRIPT, "history.js"),
];

/// Finds the file of a path.
pub fn file(path: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.path == path)
}
