// Reading from the page's own server, with the login of Airflow's UI.

/** Why nothing was read. */
export class NotRead extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** Return the JSON of a path of the page, with these arguments where they are given. */
export async function read(path, given) {
  const url = new URL(path, document.baseURI);
  for (const [name, value] of Object.entries(given)) {
    if (value !== null) url.searchParams.set(name, value);
  }
  let answer;
  try {
    answer = await fetch(url, { headers: { Accept: "application/json" }, credentials: "same-origin" });
  } catch (error) {
    throw new NotRead(0, `Airflow's API server cannot be reached (${error.message}).`);
  }
  if (answer.ok) return answer.json();
  const told = await answer.json().catch(() => ({}));
  throw new NotRead(answer.status, typeof told.detail === "string" ? told.detail : `It answered ${answer.status}.`);
}
