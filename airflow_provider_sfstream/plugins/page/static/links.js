// Links: to other views of this page, and out of its frame to pages of Airflow's UI.

import { element } from "./dom.js";

const ROOT = new URL("../", document.baseURI);

/** Return a link to a page of Airflow's UI, by its path below the UI's root; only the text without a path. */
export function airflow(page, text, attributes = {}) {
  if (!page) return text;
  return element("a", { href: new URL(page, ROOT).href, target: "_top", ...attributes }, text);
}

/** Return an element with a text, in which each web address is a link that opens another tab. */
export function linked(text) {
  const parts = String(text).split(/(https?:\/\/[^\s]+)/);
  const links = parts.map((part, n) => (n % 2 ? element("a", { href: part, target: "_blank", rel: "noopener" }, part) : part));
  return element("span", {}, ...links);
}

/** Return the address of a page of Airflow's UI. */
export function address(page) {
  return new URL(page, ROOT).href;
}

/** Return a link to a view of this page, with those parameters that are not null; `all` stands for none. */
export function view(parameters, text, attributes = {}, anchor = "") {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== null));
  return element("a", { href: `./?${query.size ? query : "all"}${anchor}`, ...attributes }, text);
}

/**
 * Make links out of this page work. Airflow's frame around this page is sandboxed, so nothing in it can navigate the
 * window: this function clicks a copy of the link in the window itself, in another tab if the keys request that.
 */
export function leaveTheFrame() {
  const leave = (event) => {
    const link = event.target.closest?.("a[target]");
    if (!link || window.top === window || event.button > 1) return;
    let outer;
    try {
      outer = window.top.document.createElement("a");
    } catch {
      return; // the window is not Airflow's
    }
    event.preventDefault();
    outer.href = new URL(link.getAttribute("href"), document.baseURI).href;
    if (link.target === "_blank" || event.ctrlKey || event.metaKey || event.shiftKey || event.button === 1) {
      outer.target = "_blank";
      outer.rel = "noopener";
    }
    outer.click();
  };
  document.addEventListener("click", leave);
  document.addEventListener("auxclick", leave);
}

/** Show the view that the address of Airflow's UI around this page names: Airflow passes its query to no plugin. */
export function followTheWindow() {
  if (location.search || window.parent === window) return false;
  try {
    const uri = new URLSearchParams(window.parent.location.search).get("stream");
    if (uri !== null) location.replace(`./?${new URLSearchParams({ stream: uri })}`);
    return uri !== null;
  } catch {
    return false; // the window is not Airflow's
  }
}
