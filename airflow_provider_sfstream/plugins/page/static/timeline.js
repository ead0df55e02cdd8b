// The windows of a stream in time, as a drawing whose windows are links.

import { drawn, element } from "./dom.js";
import { count, span, time } from "./format.js";
import { address } from "./links.js";

const [LIVE, BACKFILL, AXIS, HEIGHT] = [6, 42, 66, 88];
const DAY = 86_400_000;
const HOURS_OF_TICKS = [1, 3, 6, 12, 24];

/** Return the drawing, which adapts to the available width. */
export function timeline(found, now) {
  const figure = element("figure", { class: "timeline" }, element("div", {}), legend());
  const container = figure.firstChild;
  const fit = () => container.replaceChildren(drawing(found, new Date(now), Math.max(container.clientWidth, 280)));
  new ResizeObserver(fit).observe(container);
  return figure;
}

/** Return the content of the drawing as text. */
export function described(found, now) {
  const of = (test) => found.windows.filter(test).length;
  const holes = found.not_covered.reduce((sum, hole) => sum + (new Date(hole.until) - new Date(hole.from)) / 1000, 0);
  return [
    `${count(found.windows.length, "window")} from ${time(found.start)} to ${time(now)}`,
    `${of((w) => w.kind === "live")} live`,
    `${of((w) => w.kind === "backfill")} backfill`,
    `${of((w) => !w.events)} empty`,
    `${of((w) => w.gap)} after a gap`,
    `not covered by any: ${span(holes)}`,
  ].join(", ");
}

function drawing(found, now, width) {
  const start = new Date(found.start);
  const whole = Math.max(now - start, 1);
  const x = (iso) => ((Math.max(new Date(iso), start) - start) / whole) * width;
  const picture = { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img" };
  return drawn(
    "svg",
    { ...picture, "aria-label": described(found, now.toISOString()) },
    ...ticks(start, now, x, width),
    ...found.not_covered.map((hole) => box(hole, x, { fill: "url(#not-covered)", class: "not-covered" }, "Not covered")),
    ...found.windows.filter((each) => new Date(each.until) >= start).map((each) => linked(each, x)),
    ...found.lost.map((lost) => box(lost, x, { class: "gap", y: LIVE + 22, height: 8 }, lost.uncertain ? "Possible loss, no event is known to be lost" : "Events were lost")),
  );
}

function linked(each, x) {
  const live = each.kind === "live";
  const kinds = ["window", each.kind, each.events ? "" : "empty", each.covers ? "" : "unconfirmed"];
  const description = `${live ? "Live" : "Backfill"} window, ${count(each.events, "event")}${each.covers ? "" : ", covers no time"}`;
  const at = live ? { y: LIVE, height: 30 } : { y: BACKFILL, height: 18 };
  const drawing = box(each, x, { ...at, class: kinds.filter(Boolean).join(" ") }, description);
  // Not in the order of focus: the table below has the same links, for the keyboard and for screen readers.
  return each.page ? drawn("a", { href: address(each.page), target: "_top", tabindex: -1 }, drawing) : drawing;
}

function box(each, x, attributes, description) {
  const [left, right] = [x(each.from), x(each.until)];
  const title = drawn("title", {}, `${description}: ${time(each.from)} to ${time(each.until)}`);
  return drawn("rect", { x: left, width: Math.max(right - left, 1.5), y: LIVE, height: 30, ...attributes }, title);
}

function ticks(start, now, x, width) {
  const room = Math.max(Math.floor(width / 90), 1);
  const hours = HOURS_OF_TICKS.find((each) => (now - start) / (each * 3_600_000) <= room) ?? 24;
  const step = hours * 3_600_000;
  const marks = [];
  for (let at = Math.ceil(start / step) * step; at <= now; at += step) {
    const left = x(new Date(at));
    const iso = new Date(at).toISOString();
    const text = at % DAY === 0 ? iso.slice(5, 10) : iso.slice(11, 16);
    marks.push(drawn("path", { class: "tick", d: `M${left} ${LIVE}V${AXIS}` }));
    if (left < width - 32) marks.push(drawn("text", { x: left + 3, y: HEIGHT - 8 }, text));
  }
  return marks;
}

function legend() {
  const kinds = [
    ["window live", "live"],
    ["window backfill", "backfill"],
    ["window live empty", "empty"],
    ["window live unconfirmed", "covers no time"],
    ["gap", "gap"],
    ["not-covered", "not covered", "url(#not-covered)"],
  ];
  const items = kinds.map(([kind, text, fill]) => {
    const swatch = drawn("rect", { class: kind, x: 1, y: 1, width: 14, height: 10, fill });
    return element("li", {}, drawn("svg", { width: 16, height: 12, "aria-hidden": "true" }, swatch), text);
  });
  return element("figcaption", {}, element("ul", { class: "legend" }, ...items), "Times are UTC.");
}
