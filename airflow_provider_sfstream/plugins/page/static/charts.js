// Small drawings of one stream, each with its text.

import { drawn, element } from "./dom.js";
import { count, number, span } from "./format.js";

/** Return the remaining part of the retention as a bar: the proven part, and the estimated part. */
export function headroom(stream) {
  if (!stream.headroom || stream.headroom.best === null) return element("span", { class: "quiet" }, "unknown");
  const { known, assumed, best, certainty } = stream.headroom;
  const share = (seconds) => Math.max(0, Math.min(1, seconds / stream.retention)) * 100;
  const text = `${span(best)} of ${span(stream.retention)}, ${certainty}`;
  const bars = [drawn("rect", { class: "track", width: 100, height: 8, rx: 1 })];
  if (assumed !== null) {
    bars.push(drawn("rect", { class: "outline", width: share(assumed), height: 8 }));
    bars.push(drawn("rect", { fill: "url(#assumed)", width: share(assumed), height: 8 }));
  }
  if (known !== null) bars.push(drawn("rect", { class: `known ${stream.headroom.level}`, width: share(known), height: 8 }));
  const picture = { class: "headroom", viewBox: "0 0 100 8", preserveAspectRatio: "none", role: "img" };
  return element(
    "div",
    { class: "time-left" },
    drawn("svg", { ...picture, "aria-label": `Time left: ${text}` }, ...bars),
    element("span", { class: "under", "aria-hidden": "true" }, text),
  );
}

/** Return the events of each hour as columns. */
export function sparkline(hours) {
  const sum = hours.reduce((a, b) => a + b, 0);
  const most = Math.max(...hours, 1);
  const columns = hours.map((events, n) => (events ? `M${n} 16V${16 - Math.max(1, (events / most) * 16)}h.8V16z` : ""));
  const text = `${count(sum, "event")} in ${hours.length} hours, at most ${number(Math.max(...hours))} in one`;
  const picture = { class: "hours", viewBox: `0 0 ${hours.length} 16`, preserveAspectRatio: "none", role: "img" };
  return element(
    "div",
    { class: "events" },
    drawn(
      "svg",
      { ...picture, "aria-label": text },
      drawn("title", {}, text),
      drawn("path", { class: "floor", d: `M0 15.5H${hours.length}V16H0z` }),
      drawn("path", { d: columns.join("") || "M0 16" }),
    ),
    element("span", { class: "under", "aria-hidden": "true" }, number(sum)),
  );
}
