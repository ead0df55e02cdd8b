// The requested view and its states: loading, shown, empty, forbidden, failed.

import { element } from "./dom.js";
import { NotRead, read } from "./fetching.js";
import { time } from "./format.js";
import { airflow, followTheWindow, leaveTheFrame, view } from "./links.js";
import { nothing, overview } from "./overview.js";
import { stream } from "./stream.js";

const parameters = new URLSearchParams(location.search);
const [uri, dag] = [parameters.get("stream"), parameters.get("dag")];
const [main, heading, at, state, content] = ["main", "heading", "at", "state", "content"].map((id) => document.getElementById(id));

async function show() {
  main.setAttribute("aria-busy", "true");
  say("Loading…");
  try {
    const found = uri === null ? await read("api/streams", { dag }) : await read("api/stream", { uri });
    at.replaceChildren(`As of ${time(found.now)}`);
    uri === null ? showAll(found) : showOne(found);
  } catch (error) {
    content.replaceChildren();
    say(...notRead(error));
    if (!(error instanceof NotRead)) throw error;
  } finally {
    main.removeAttribute("aria-busy");
  }
}

function showAll(found) {
  heading.replaceChildren(element("h1", {}, dag === null ? "Salesforce streams" : `Salesforce streams of ${dag}`));
  say(...(found.streams.length ? [] : [nothing(found, dag)]));
  content.replaceChildren(...overview(found, dag).filter((each) => each !== null));
}

function showOne(found) {
  document.title = `${found.topic} · Salesforce streams`;
  heading.replaceChildren(
    view({ dag }, dag === null ? "All streams" : `Streams of ${dag}`, { class: "back" }),
    element("h1", {}, found.topic),
  );
  say();
  content.replaceChildren(...stream(found).filter((each) => each !== null));
}

function notRead(error) {
  switch (error.status) {
    case 401:
      return ["You are no longer logged in to Airflow. ", airflow("./", "Log in")];
    case 403:
      return ["You may not see this page. It requires the permission to read Airflow's plugins."];
    case 404:
      return [`${error.message}. `, view({ dag }, "All streams")];
    default:
      return [`The streams cannot be shown. ${error.message}`];
  }
}

function say(...texts) {
  state.replaceChildren(...texts);
  state.hidden = !texts.length;
}

document.getElementById("refresh").addEventListener("click", show);
leaveTheFrame();
if (!followTheWindow()) await show();
