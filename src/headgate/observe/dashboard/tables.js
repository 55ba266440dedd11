// Tables whose rows keep their elements: focus, selection and screen readers stay where they are. Text only: what a
// client sends is never HTML.

export class Table {
  /** `spec`: id, title, columns (title, or [title, class]), empty. */
  constructor(spec, parent) {
    this.rows = new Map();
    this.section = document.createElement("section");
    this.section.className = `panel ${spec.wide ? "wide" : ""}`;
    const title = document.createElement("h2");
    title.id = `${spec.id}-title`;
    title.textContent = spec.title;
    this.note = document.createElement("p");
    this.note.className = "note";
    const scroll = (this.scroll = document.createElement("div"));
    scroll.className = "scroll";
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-labelledby", title.id);
    const table = document.createElement("table");
    table.id = spec.id;
    const caption = table.createCaption();
    caption.className = "hidden";
    caption.textContent = spec.title;
    const head = table.createTHead().insertRow();
    this.classes = spec.columns.map((column) => (Array.isArray(column) ? column[1] : ""));
    for (const [index, column] of spec.columns.entries()) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.className = this.classes[index];
      cell.textContent = Array.isArray(column) ? column[0] : column;
      head.append(cell);
    }
    this.body = table.createTBody();
    this.empty = spec.empty ?? "none";
    scroll.append(table);
    this.section.append(title, this.note, scroll);
    parent.append(this.section);
  }

  /** Show these rows: [key, cells]; a cell is text, or {text, state}, or {button, act}. */
  show(rows, note = "") {
    const text = rows.length ? note : this.empty;
    if (this.note.textContent !== text) this.note.textContent = text;
    this.scroll.hidden = !rows.length;
    const focused = document.activeElement;
    const keys = new Set(rows.map(([key]) => key));
    for (const [key, row] of this.rows) {
      if (!keys.has(key)) {
        row.remove();
        this.rows.delete(key);
      }
    }
    rows.forEach(([key, cells], index) => {
      let row = this.rows.get(key);
      if (!row) {
        row = document.createElement("tr");
        cells.forEach((_, at) => row.append(document.createElement(at ? "td" : "th")));
        row.cells[0].scope = "row";
        this.rows.set(key, row);
      }
      if (this.body.rows[index] !== row) this.body.insertBefore(row, this.body.rows[index] ?? null);
      cells.forEach((cell, at) => fill(row.cells[at], cell, this.classes[at]));
    });
    // An element that is moved loses the focus.
    if (focused !== document.activeElement && this.body.contains(focused)) focused.focus({ preventScroll: true });
  }
}

function fill(element, cell, className) {
  const { text = "", state = "", button = "", act = null } = typeof cell === "object" && cell ? cell : { text: cell };
  const classes = `${className} ${state}`.trim();
  if (element.className !== classes) element.className = classes;
  if (!button) {
    const shown = String(text ?? "–");
    if (element.textContent !== shown) element.textContent = shown;
    return;
  }
  let inner = element.querySelector("button");
  if (!inner) {
    inner = document.createElement("button");
    inner.type = "button";
    inner.addEventListener("click", () => inner.act());
    element.replaceChildren(inner);
  }
  inner.act = act;
  if (inner.textContent !== button) inner.textContent = button;
  if (cell.label && inner.ariaLabel !== cell.label) inner.ariaLabel = cell.label;
}
