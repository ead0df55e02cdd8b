// Reading from the page's own server, with the login of Airflow's UI.

/** A failed request. */
export class NotRead extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** Return the JSON of a path of the page, with those parameters that are not null. */
export async function read(path, parameters) {
  const url = new URL(path, document.baseURI);
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null) url.searchParams.set(name, value);
  }
  let response;
  try {
    response = await fetch(url, { headers: { Accept: "application/json" }, credentials: "same-origin" });
  } catch (error) {
    throw new NotRead(0, `Airflow's API server cannot be reached (${error.message}).`);
  }
  if (response.ok) return response.json();
  const { detail } = await response.json().catch(() => ({}));
  throw new NotRead(response.status, typeof detail === "string" ? detail : `Airflow's API server answered with status ${response.status}.`);
}
