// Tables whose rows keep their elements: focus, selection and screen readers stay where they are.

import { make, makeTable, write } from "./dom.js";

export class Table {
  /** `empty` is shown instead of a table without rows. */
  constructor({ id, title, columns, empty = "None.", wide = false }, parent) {
    this.rows = new Map();
    this.empty = empty;
    const { table, body, classes } = makeTable(title, columns);
    table.id = id;
    Object.assign(this, { body, classes });
    this.note = make("p", { className: "note" });
    this.scroll = make("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: title }, table);
    const heading = make("h2", {}, title);
    parent.append(make("section", { className: `panel${wide ? " wide" : ""}` }, heading, this.note, this.scroll));
  }

  /** Show these rows: [key, cells]; a cell is text, or {text, state}, or {button, label, act}. */
  show(rows, note = "") {
    write(this.note, rows.length ? note : this.empty);
    this.scroll.hidden = !rows.length;
    const focused = document.activeElement;
    const keys = new Set(rows.map(([key]) => key));
    for (const [key, row] of this.rows) {
      if (keys.has(key)) continue;
      row.remove();
      this.rows.delete(key);
    }
    rows.forEach(([key, cells], index) => {
      const row = this.rows.get(key) ?? this.add(key, cells.length);
      if (this.body.rows[index] !== row) this.body.insertBefore(row, this.body.rows[index] ?? null);
      cells.forEach((cell, at) => fill(row.cells[at], cell, this.classes[at]));
    });
    // An element that is moved loses the focus.
    if (focused !== document.activeElement && this.body.contains(focused)) focused.focus({ preventScroll: true });
  }

  add(key, length) {
    const cells = Array.from({ length: length - 1 }, () => make("td"));
    const row = make("tr", {}, make("th", { scope: "row" }), ...cells);
    this.rows.set(key, row);
    return row;
  }
}

function fill(element, cell, classes) {
  const { text = "", state = "", button = "", label = "", act } = typeof cell === "object" ? cell : { text: cell };
  const className = `${classes} ${state}`.trim();
  if (element.className !== className) element.className = className;
  if (!button) return write(element, text);
  if (!element.firstElementChild) {
    element.replaceChildren(make("button", { onclick: (event) => event.currentTarget.act() }));
  }
  Object.assign(element.firstElementChild, { act, ariaLabel: label });
  write(element.firstElementChild, button);
}
