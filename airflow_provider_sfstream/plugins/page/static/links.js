// Links: to other views of this page, and out of its frame to pages of Airflow's UI.

import { element } from "./dom.js";

const ROOT = new URL("../", document.baseURI);

/** Return a link to a page of Airflow's UI, by its path below the UI's root; only the text without a path. */
export function airflow(page, text, attributes = {}) {
  if (!page) return text;
  return element("a", { href: new URL(page, ROOT).href, target: "_top", ...attributes }, text);
}

/** Return the address of a page of Airflow's UI. */
export function address(page) {
  return new URL(page, ROOT).href;
}

/** Return a link to a view of this page, with those parameters that are not null. */
export function view(parameters, text, attributes = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== null));
  return element("a", { href: `./${query.size ? `?${query}` : ""}`, ...attributes }, text);
}

/**
 * Make links to Airflow's UI work. Airflow's frame around this page is sandboxed, so nothing in it can navigate the
 * window: this function clicks a copy of the link in the window itself, in another tab if the keys request that.
 */
export function leaveTheFrame() {
  const leave = (event) => {
    const link = event.target.closest?.("a[target=_top]");
    if (!link || window.top === window || event.button > 1) return;
    let outer;
    try {
      outer = window.top.document.createElement("a");
    } catch {
      return; // the window is not Airflow's
    }
    event.preventDefault();
    outer.href = new URL(link.getAttribute("href"), document.baseURI).href;
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button === 1) {
      outer.target = "_blank";
      outer.rel = "noopener";
    }
    outer.click();
  };
  document.addEventListener("click", leave);
  document.addEventListener("auxclick", leave);
}
