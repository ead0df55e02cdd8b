// One stream.

import { headroom, sparkline } from "./charts.js";
import { element, section, table } from "./dom.js";
import { ago, bytes, count, moment, number, time } from "./format.js";
import { airflow, linked } from "./links.js";
import { allocation, concerns } from "./overview.js";
import { timeline } from "./timeline.js";

const NOT_COVERED =
  "Not covered does not mean lost: no window covers this time yet. Gaps shows the lost spans.";

/** Return the content of the page of a stream. */
export function stream(found) {
  return [
    section("State", concerns(found.concerns), ...(found.failures ?? []).map((each) => failure(each, found.now))),
    found.retired ? forget(found) : null,
    found.actions.length ? actions(found.actions) : null,
    section("Status", ...(found.hours ? facts(found) : [])),
    section("Windows", ...windows(found)),
    section("Gaps", ...gaps(found)),
    section("Schema changes", ...changes(found.schema_changes)),
    section("Replica", ...replica(found.tables)),
    section("Event log", ...eventLogs(found)),
  ];
}

function forget(found) {
  const text = "The DAG of this stream no longer exists. To remove the stream from this page, run this command where Airflow runs:";
  const kept = "It deletes only the stored status. Positions, windows and tables stay; a later drain shows the stream again.";
  const command = element("p", {}, element("code", {}, found.forget));
  return element("section", { id: "forget" }, element("h2", {}, "Forget"), element("p", {}, text), command, element("p", { class: "quiet" }, kept));
}

function failure(each, now) {
  const lines = Object.entries(each.report).map(([word, text]) => [element("dt", {}, word), element("dd", {}, linked(text))]);
  const head = ["Task ", airflow(each.page, each.task_id), " failed ", ago(each.at, now)];
  return element("div", { class: "failure" }, element("p", {}, ...head), element("dl", {}, ...lines.flat()));
}

function actions(found) {
  const links = found.map((each) => airflow(each.page, each.name, { class: "button", title: each.hint }));
  const items = links.map((link, n) => element("li", {}, link, element("span", { class: "quiet" }, found[n].hint)));
  return element("nav", { "aria-label": "Airflow's forms" }, element("ul", { class: "actions" }, ...items));
}

function facts(found) {
  const lines = [
    ["Time left", headroom(found)],
    ["End last confirmed", ago(found.confirmed_at, found.now)],
    ["Salesforce last answered", ago(found.contact_at, found.now)],
    ["Last stored event", ago(found.last_event_time, found.now, "none")],
    ["Events per hour", sparkline(found.hours)],
    ["Position", found.position ? element("code", {}, found.position) : "none"],
    ["Connection", `${found.connection}${found.org_id ? `, org ${found.org_id}` : ""}`],
    ["Subscription", `${found.subscription}, ${found.api ?? "API unknown"}`],
    ...found.allocations.map((each) => ["Allocation", allocation(each)]),
    ...(found.waiting ? [["Wait", waiting(found.waiting, found.now)]] : []),
    ["DAGs", element("span", {}, ...found.dags.flatMap((dag) => [airflow(dag.page, dag.dag_id), " "]))],
  ];
  const shown = lines.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]);
  return [element("dl", { class: "facts" }, ...shown)];
}

function waiting(wait, now) {
  return element("span", {}, `${wait.reason ?? "ended"}, `, ago(wait.at, now));
}

function windows(found) {
  const { timeline: times, now } = found;
  if (!times.windows.length) return [element("p", {}, "No window yet.")];
  const rows = times.windows.map((each) => [
    airflow(each.page, time(each.from), { title: "The task that drained it, and its log" }),
    moment(each.until),
    `${each.kind}${each.events ? "" : ", empty"}${each.covers ? "" : ", covers no time"}${each.gap ? ", after a gap" : ""}`,
    number(each.events),
    bytes(each.bytes),
    each.stop_reason,
    each.manifest_url ? element("code", {}, each.manifest_url) : "",
  ]);
  const columns = ["From", "Until", "Kind", "Events", "Payload", "Ended by", "Manifest"];
  const holes = times.not_covered.map((hole) => element("li", {}, moment(hole.from), " to ", moment(hole.until)));
  const holesTitle = `Not covered: ${count(holes.length, "span")} of time`;
  return [
    timeline(times, now),
    holes.length ? folded(holesTitle, element("div", {}, element("p", {}, NOT_COVERED), element("ul", {}, ...holes))) : null,
    folded(count(rows.length, "window"), table("Windows, newest first", columns, rows)),
  ];
}

function folded(title, content) {
  return element("details", {}, element("summary", {}, title), content);
}

function gaps(found) {
  const missing = (found.missing ?? []).map((lost) => element("p", {}, `Missing in the last interval: ${time(lost.from)} to ${time(lost.to)}`));
  const rows = found.gap_list.map((gap) => [
    moment(gap.since),
    moment(gap.detected_at),
    gap.uncertain ? `Possible loss, no event is known to be lost. ${gap.reason}` : gap.reason,
    gap.after ? element("code", {}, gap.after) : "the beginning",
    airflow(gap.page, "task"),
  ]);
  const columns = ["Lost at most since", "Detected", "Reason", "After position", "By"];
  return [rows.length ? table("Gaps, newest first", columns, rows) : null, ...missing];
}

function changes(found) {
  const kinds = [
    ["added", "Added"],
    ["removed", "Removed"],
    ["retyped", "Retyped"],
    ["became_nullable", "May be null now"],
  ];
  const type = (field) => (field.from ? `${field.from} before, ${field.to} now` : field.type);
  const rows = found.map((change) => {
    const present = kinds.filter(([kind]) => Array.isArray(change[kind]) && change[kind].length);
    const lines = present.map(([kind, word]) => `${word}: ${change[kind].map((field) => `${field.name}, ${type(field)}`).join("; ")}`);
    return [moment(change.at), change.event, lines.map((line) => element("div", {}, line)), element("code", {}, change.schema_id)];
  });
  const columns = ["Detected", "Event", "Fields", "New schema"];
  return rows.length ? [table("Changes of schemas, newest first", columns, rows)] : [];
}

function replica(found) {
  const rows = found.map((each) => [each.table, number(each.dirty), each.flag ?? "", element("code", {}, each.url)]);
  return rows.length ? [table("Tables", ["Table", "Dirty rows", "Must be fetched again", "Folder"], rows)] : [];
}

function eventLogs(found) {
  const rows = found.event_logs.map((each) => [
    element("code", {}, each.url),
    airflow(each.page, ago(each.at, found.now)),
    each.rows_written === null ? "" : number(each.rows_written),
    each.set_aside ? element("span", {}, `${number(each.set_aside.rows)}, `, ago(each.set_aside.at, found.now)) : "none",
  ]);
  const columns = ["Folder", "Last written", "Rows written", "Last quarantined rows"];
  return rows.length ? [table("Event logs", columns, rows)] : [];
}
