// Elements. Their content is always text, never markup: names come from Salesforce and from its publishers.

const SVG = "http://www.w3.org/2000/svg";

/** Return an HTML element. Children are elements or texts; null is skipped. */
export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** Return an SVG element. */
export function drawn(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

/** Return a section with a heading; null without content. */
export function section(title, ...children) {
  const shown = children.flat().filter((child) => child !== null);
  return shown.length ? element("section", {}, element("h2", {}, title), ...shown) : null;
}

/** Return a table. A narrow window shows it as a list, so each cell has the name of its column. */
export function table(caption, columns, rows) {
  const head = columns.map((column) => element("th", { scope: "col", role: "columnheader" }, column));
  const body = rows.map((cells) => {
    const shown = cells.map((cell, n) => {
      const name = n === 0 ? "th" : "td";
      const role = n === 0 ? "rowheader" : "cell";
      return element(name, { role, "data-column": columns[n], ...(n === 0 ? { scope: "row" } : {}) }, ...[cell].flat());
    });
    return element("tr", { role: "row" }, ...shown);
  });
  return element(
    "table",
    { role: "table" },
    element("caption", {}, caption),
    element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...head)),
    element("tbody", { role: "rowgroup" }, ...body),
  );
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) node.setAttribute(name, String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined).map(asNode));
  return node;
}

function asNode(child) {
  return child instanceof Node ? child : document.createTextNode(String(child));
}
