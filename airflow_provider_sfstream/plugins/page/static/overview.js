// All streams, worst first.

import { headroom, sparkline } from "./charts.js";
import { element, table } from "./dom.js";
import { ago, count, number } from "./format.js";
import { airflow, view } from "./links.js";

const COLUMNS = ["Stream", "State", "Time left", "Last drain", "Events", "Gaps", "Quarantine", "Dirty rows"];
const FILTERED_FROM = 6;

/** Return the content of the page of all streams. */
export function overview(found, dag) {
  const allocated = found.streams.some((stream) => stream.allocations?.length);
  const columns = allocated ? [...COLUMNS, "Allocation"] : COLUMNS;
  const rows = found.streams.map((stream) => cells(stream, found.now, dag).slice(0, columns.length));
  const streams = table(`${count(found.streams.length, "stream")}, worst first`, columns, rows);
  streams.classList.add("streams");
  found.streams.forEach((stream, n) => streams.tBodies[0].rows[n].classList.add(stream.retired ? "retired" : stream.level));
  const many = found.streams.length >= FILTERED_FROM;
  return [
    banner(found.banner),
    notes(found),
    many ? filter(streams) : null,
    found.streams.length ? streams : null,
    ...found.folders.map((failure) => failedTables(failure, found.now)),
  ];
}

function banner(answer) {
  if (!answer) return null;
  const text = element("p", { class: `${answer.level} mark` }, answer.text);
  return element("div", { class: `banner ${answer.level}` }, text, element("p", { class: "quiet" }, answer.note));
}

/** Return the text of a page without streams. */
export function nothing(found, dag) {
  if (dag !== null) return `No task of this DAG has reported a stream ${found.hidden ? "that you may read" : "yet"}.`;
  if (found.hidden) return "There are streams, but you may not read their DAGs or their connections.";
  return "No task has reported a stream yet. The page shows a stream after a task has drained it or waited for it.";
}

function notes(found) {
  const texts = [];
  if (found.hidden && found.streams.length) texts.push("Other streams are hidden: you may not read their DAG or their connection.");
  if (found.unreadable) texts.push(`${count(found.unreadable, "document")} cannot be read: see the log of the API server.`);
  return texts.length ? element("p", { class: "quiet" }, texts.join(" ")) : null;
}

function cells(stream, now, dag) {
  const name = element(
    "div",
    { class: "name" },
    view({ stream: stream.uri, dag }, stream.topic),
    stream.connection ? element("span", { class: "quiet" }, `${stream.subscription} · ${stream.connection}`) : null,
  );
  const state = stream.retired ? retired(stream, dag) : concerns(stream.concerns);
  if (!stream.hours) return [name, state, ...COLUMNS.slice(2).map(() => ""), ""];
  return [
    name,
    state,
    headroom(stream),
    ago(stream.drained_at, now),
    sparkline(stream.hours),
    some(stream.gaps),
    some(stream.quarantined),
    element("span", {}, some(stream.dirty), stream.flagged ? ", and flagged tables" : null),
    stream.allocations.map((each) => element("div", {}, allocation(each))),
  ];
}

function retired(stream, dag) {
  const forget = view({ stream: stream.uri, dag }, "Forget", {}, "#forget");
  return element("span", { class: "quiet" }, "Its DAG no longer exists. ", forget);
}

/** Return the problems and notes of a stream as a list; "Good" stands for no problem. */
export function concerns(found) {
  const isGood = found.every((concern) => concern.level === "note");
  const shown = isGood ? [{ level: "good", text: "Good" }, ...found] : found;
  const items = shown.map((concern) => element("li", { class: `${concern.level} mark` }, concern.text));
  return element("ul", { class: "concerns" }, ...items);
}

/** Return the used amount of an allocation as text. */
export function allocation(each) {
  const share = Math.round((each.used / each.maximum) * 100);
  return `${each.name}: ${number(each.used)} of ${number(each.maximum)} (${share} %)`;
}

function some(value) {
  return element("span", { class: value ? "some" : "quiet" }, number(value));
}

function failedTables(failure, now) {
  return element(
    "p",
    { class: failure.retired ? "quiet" : "bad mark" },
    `Tables in ${failure.subject}: task `,
    airflow(failure.page, failure.task_id),
    ` failed `,
    ago(failure.at, now),
    `: ${failure.error}`,
    failure.retired ? element("span", {}, " Its DAG no longer exists. To remove this line, run ", element("code", {}, failure.forget)) : null,
  );
}

function filter(streams) {
  const field = element("input", { type: "search", id: "filter", autocomplete: "off" });
  const shown = element("output", { for: "filter" });
  const rows = [...streams.tBodies[0].rows].map((row) => [row, row.textContent.toLowerCase()]);
  field.addEventListener("input", () => {
    const wanted = field.value.trim().toLowerCase();
    for (const [row, text] of rows) row.hidden = !text.includes(wanted);
    shown.value = wanted ? `${rows.filter(([row]) => !row.hidden).length} of ${count(rows.length, "stream")}` : "";
  });
  return element("p", { class: "filter" }, element("label", { for: "filter" }, "Filter"), field, shown);
}
