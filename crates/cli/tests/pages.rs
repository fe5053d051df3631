//! The pages for a browser, in a browser: headless Chromium, where there is one. Each is opened as wide as a phone and as wide as a screen, light and dark.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::foldspace;
use serde_json::Value;

/// A browser on the PATH. CI has one; elsewhere the test says that it was left out.
fn browser() -> Option<PathBuf> {
    let found = std::env::split_paths(&std::env::var_os("PATH")?)
        .flat_map(|dir| ["chromium", "chromium-browser", "google-chrome"].map(|name| dir.join(name)))
        .find(|path| path.is_file());
    if found.is_none() {
        eprintln!("left out: there is no Chromium on the PATH");
    }
    found
}

/// Opens a page in two frames and returns what the script below saw of each.
const PROBE: &str = r#"<!doctype html><meta charset="utf-8"><body><script>
const page = PAGE;
const seen = [];
const look = (frame, width) => {
  const doc = frame.contentDocument, root = doc.documentElement;
  const bounds = [...doc.querySelectorAll("svg")].map(svg => {
    const box = svg.getBoundingClientRect(), room = (svg.closest("figure, .scroll") ?? root).getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].filter(text => text.textContent.trim());
    const outside = texts.filter(text => {
      const b = text.getBoundingClientRect();
      return b.left < box.left - 1 || b.right > box.right + 1 || b.top < box.top - 1 || b.bottom > box.bottom + 1;
    });
    return { width: box.width, height: box.height, marks: svg.querySelectorAll("circle, .node").length,
      fits: svg.closest(".scroll") ? true : box.right <= room.right + 1, texts: texts.length, outside: outside.map(text => text.textContent) };
  });
  const style = frame.contentWindow.getComputedStyle(doc.body);
  seen.push({ width, plots: bounds, overflow: root.scrollWidth - root.clientWidth, text: style.color, page: style.backgroundColor,
    dark: frame.contentWindow.matchMedia("(prefers-color-scheme: dark)").matches, errors: frame.contentWindow.errors ?? [] });
};
const open = width => new Promise(done => {
  const frame = document.createElement("iframe");
  frame.style = `width:${width}px;height:900px;border:0`;
  frame.srcdoc = page.replace("<head>", "<head><script>window.errors = []; addEventListener('error', e => errors.push(e.message))<\/script>");
  frame.onload = () => { look(frame, width); done(); };
  document.body.append(frame);
});
(async () => { await open(360); await open(1200); document.title = "done"; document.body.textContent = "SEEN" + JSON.stringify(seen) + "END"; })();
</script>"#;

fn look(browser: &Path, page: &Path, scheme: &str) -> Vec<Value> {
    let dir = page.parent().unwrap();
    let text = fs::read_to_string(page).unwrap();
    assert!(text.len() > 10_000, "a page with something on it");
    let quoted = serde_json::to_string(&text).unwrap().replace("</", "<\\/");
    let probe = dir.join(format!("probe-{scheme}.html"));
    fs::write(&probe, PROBE.replacen("PAGE", &quoted, 1)).unwrap();
    let done = Command::new(browser)
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--window-size=1400,1000",
            "--virtual-time-budget=20000",
        ])
        .arg(format!("--blink-settings=preferredColorScheme={}", if scheme == "dark" { 0 } else { 1 }))
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .arg("--dump-dom")
        .arg(format!("file://{}", probe.display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&done.stdout);
    let seen = dom.split_once("SEEN").and_then(|(_, rest)| rest.split_once("END"));
    let (seen, _) =
        seen.unwrap_or_else(|| panic!("nothing was seen: {dom:.300} {}", String::from_utf8_lossy(&done.stderr)));
    let seen = seen.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&seen).unwrap()
}

/// `plots`: how many pictures there must be, and of each some marks.
fn verify(page: &Path, plots: usize) {
    let Some(browser) = browser() else { return };
    for scheme in ["light", "dark"] {
        for seen in look(&browser, page, scheme) {
            let width = &seen["width"];
            assert_eq!(seen["errors"], serde_json::json!([]), "scripts run");
            assert_eq!(seen["dark"], scheme == "dark", "the browser does as it is told");
            assert_ne!(seen["text"], seen["page"]);
            assert_eq!(seen["overflow"], 0, "{width} pixels: something is wider than the page");
            let pictures = seen["plots"].as_array().unwrap();
            assert_eq!(pictures.len(), plots, "{width} pixels");
            for picture in pictures {
                assert!(
                    picture["marks"].as_u64() > Some(0) && picture["texts"].as_u64() > Some(2),
                    "{picture}: nothing is drawn"
                );
                assert!(
                    picture["width"].as_f64() > Some(200.0) && picture["height"].as_f64() > Some(60.0),
                    "{picture}: too small"
                );
                assert_eq!(picture["fits"], true, "{width} pixels: {picture}");
                assert_eq!(picture["outside"], serde_json::json!([]), "{width} pixels: text is cut off");
            }
        }
    }
}

#[test]
fn the_report_is_drawn_and_nothing_overflows() {
    let dir = tempfile::tempdir().unwrap();
    let figures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/bench.json");
    // Goals are missed in it, so the status is 1.
    foldspace().arg("bench").arg("--from").arg(&figures).arg("--report").arg(dir.path()).assert().code(1);
    let page = fs::read_to_string(dir.path().join("index.html")).unwrap();
    let plots = page.matches("<svg ").count();
    assert!(plots >= 10, "{plots} plots");
    verify(&dir.path().join("index.html"), plots);
    assert!(dir.path().join("results.json").is_file());
}

#[test]
fn the_viewer_is_drawn_and_nothing_overflows() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("explore.html");
    foldspace().arg("explore").arg("-o").arg(&page).assert().success();
    verify(&page, 1);
}

#[test]
fn a_guests_snapshot_is_drawn_and_nothing_overflows() {
    let dir = tempfile::tempdir().unwrap();
    let (file, page) = (dir.path().join("s.json"), dir.path().join("explore.html"));
    let script =
        "a=$(seq 1 2000); (echo child >/proc/snapshot; (echo grandchild >/proc/snapshot; true); true); sleep 1 & wait";
    let option = format!("--snapshot={}", file.display());
    common::run(common::System::Foldspace, &[&option], &["busybox", "sh", "-c", script]).assert().success();
    foldspace().arg("explore").arg(&file).arg("-o").arg(&page).assert().success();
    verify(&page, 1);
}
