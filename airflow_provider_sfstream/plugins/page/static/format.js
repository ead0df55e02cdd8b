// Times, spans of time and numbers as text.

import { element } from "./dom.js";

const NUMBER = new Intl.NumberFormat("en-US");
const [MINUTE, HOUR, DAY] = [60, 3600, 86400];

/** Return a number with separators of thousands. */
export function number(value) {
  return NUMBER.format(value);
}

/** Return a count with its noun: "1 window", "2 windows". */
export function count(value, noun) {
  return `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/** Return a span of seconds in its largest units. */
export function span(seconds) {
  const sign = seconds < 0 ? "−" : "";
  const s = Math.abs(seconds);
  if (s < MINUTE) return `${sign}${Math.floor(s)} s`;
  if (s < HOUR) return `${sign}${Math.floor(s / MINUTE)} min`;
  if (s < 4 * DAY) {
    const minutes = Math.floor((s % HOUR) / MINUTE);
    return `${sign}${Math.floor(s / HOUR)} h${s < 10 * HOUR && minutes ? ` ${minutes} min` : ""}`;
  }
  return `${sign}${Math.floor(s / DAY)} d`;
}

/** Return a time in UTC, to the minute. */
export function time(iso) {
  return `${new Date(iso).toISOString().slice(0, 16).replace("T", " ")} UTC`;
}

/** Return an element with the age of a time; "never" without a time. */
export function ago(iso, now, never = "never") {
  if (!iso) return never;
  const seconds = (new Date(now) - new Date(iso)) / 1000;
  const text = seconds < MINUTE ? "just now" : `${span(seconds)} ago`;
  return element("time", { datetime: iso, title: time(iso) }, text);
}

/** Return an element that shows a time. */
export function moment(iso) {
  return iso ? element("time", { datetime: iso }, time(iso)) : "unknown";
}

/** Return bytes in the largest unit in which they are at least 1. */
export function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let size = value;
  while (size >= 1000 && units.length > 1) {
    size /= 1000;
    units.shift();
  }
  return `${size < 10 && units[0] !== "B" ? size.toFixed(1) : Math.round(size)} ${units[0]}`;
}
