// Elements. Text only: what a client sends, such as a path, is never HTML.

export const byId = (id) => document.getElementById(id);

/** Make an element with properties and children, which are elements or text. */
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/** Change a text, unless it is the same: screen readers and selections notice changes only. */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Make a table: columns are written as "Name|Count:class|…"; without a visible caption by default. */
export function makeTable(title, columns, className = "hidden") {
  const cells = columns.split("|").map((column) => column.split(":"));
  const head = cells.map(([text, classes = ""]) => make("th", { scope: "col", className: classes }, text));
  const body = make("tbody");
  const caption = make("caption", { className }, title);
  const table = make("table", {}, caption, make("thead", {}, make("tr", {}, ...head)), body);
  return { table, body, classes: cells.map(([, classes = ""]) => classes) };
}
