// The charts: uPlot, with our own legend and a table as the text alternative.

/* global uPlot */
import { clock, number } from "./series.js";

const HEIGHT = 170;
const POWERS = [0.001, 0.01, 0.1, 1, 10, 100]; // the lines of a logarithmic axis

export class Chart {
  /** `spec`: title, unit (a function that writes a value), stacked, log, and lines: label, color, value(series, index). */
  constructor(spec, parent) {
    this.spec = spec;
    this.figure = document.createElement("figure");
    this.caption = document.createElement("figcaption");
    this.title = document.createElement("h3");
    this.title.textContent = spec.title;
    this.legend = document.createElement("ul");
    this.legend.className = "legend";
    this.values = spec.lines.map((line) => {
      const item = document.createElement("li");
      const value = document.createElement("b");
      item.style.setProperty("--key", `var(--${line.color})`);
      item.append(`${line.label} `, value);
      this.legend.append(item);
      return value;
    });
    this.caption.append(this.title, this.legend);
    this.canvas = document.createElement("div");
    this.canvas.setAttribute("role", "img");
    this.figure.append(this.caption, this.canvas, this.alternative());
    parent.append(this.figure);
    this.data = [];
    this.plot = null;
  }

  /** A table with a row for each minute, made while it is open. */
  alternative() {
    this.details = document.createElement("details");
    const summary = document.createElement("summary");
    summary.textContent = "As a table";
    summary.setAttribute("aria-label", `${this.spec.title}: as a table`);
    this.table = document.createElement("table");
    this.details.append(summary, this.table);
    this.details.addEventListener("toggle", () => this.fillTable());
    return this.details;
  }

  fillTable() {
    this.table.replaceChildren();
    if (!this.details.open || !this.data.length) return;
    const caption = this.table.createCaption();
    caption.textContent = `${this.spec.title}: mean of each minute`;
    const head = this.table.createTHead().insertRow();
    const body = this.table.createTBody();
    const cell = (row, text, scope) => {
      const element = document.createElement(scope ? "th" : "td");
      if (scope) element.scope = scope;
      element.textContent = text;
      row.append(element);
    };
    cell(head, "Time", "col");
    for (const line of this.spec.lines) cell(head, line.label, "col");
    const [times, ...lines] = this.data;
    for (let end = times.length; end > 0; end -= 60) {
      const row = body.insertRow();
      cell(row, clock(times[end - 1]), "row");
      for (const line of lines) {
        const known = line.slice(Math.max(0, end - 60), end).filter((value) => value !== null);
        const mean = known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
        cell(row, this.spec.unit(mean));
      }
    }
  }

  /** Compute all values again. */
  reset(series) {
    const times = series.rows.map((_, index) => series.time(index));
    const lines = this.spec.lines.map((line) => times.map((_, index) => line.value(series, index)));
    this.data = [times, ...lines];
    this.draw();
  }

  /** Add the values of the last row. */
  add(series) {
    const index = series.length - 1;
    this.data[0].push(series.time());
    this.spec.lines.forEach((line, at) => this.data[at + 1].push(line.value(series, index)));
    for (const one of this.data) if (one.length > series.length) one.shift();
    this.draw();
  }

  draw() {
    const width = this.canvas.clientWidth;
    if (!width || !this.data[0].length) return;
    if (!this.plot) this.make(width);
    if (this.plot.width !== width) this.plot.setSize({ width, height: HEIGHT });
    this.plot.setData(this.drawn());
    this.describe(this.data[0].length - 1);
  }

  /** Of stacked lines each is drawn on top of those after it. */
  drawn() {
    const [times, ...lines] = this.data;
    if (!this.spec.stacked)
      return [times, ...lines.map((line) => line.map((value) => value || (this.spec.log ? null : value)))];
    const stacked = [];
    let below = new Array(times.length).fill(0);
    for (const line of lines.toReversed()) {
      below = line.map((value, index) => below[index] + (value ?? 0));
      stacked.unshift(below);
    }
    return [times, ...stacked];
  }

  make(width) {
    const color = (name) => this.color(`var(--${name})`);
    const axis = {
      stroke: color("muted"),
      grid: { stroke: color("grid"), width: 1 },
      ticks: { show: false },
      font: "11px system-ui, sans-serif",
    };
    const { stacked, log, unit, lines } = this.spec;
    this.plot = new uPlot(
      {
        width,
        height: HEIGHT,
        legend: { show: false },
        padding: [8, 8, 0, 0],
        cursor: { y: false, points: { show: false }, drag: { x: false, y: false }, sync: { key: "headgate" } },
        scales: {
          x: { time: true, range: (_, min, max) => [Math.min(min, max - 60), max] },
          y: log
            ? { distr: 3, range: (_, min, max) => [POWERS.findLast((one) => one <= min) ?? POWERS[0], above(max)] }
            : { range: (_, __, max) => [0, Math.max(max ?? 0, 1) * 1.1] },
        },
        axes: [
          { ...axis, size: 22, space: 70, values: (_, times) => times.map((time) => this.label(time)) },
          {
            ...axis,
            size: 58,
            space: 28,
            values: (_, values) => values.map(unit),
            ...(log ? { splits: decades } : {}),
          },
        ],
        series: [
          {},
          ...lines.map((line) => ({
            stroke: color(line.color),
            width: stacked ? 1 : 1.5,
            dash: line.dash ? [6, 4] : undefined,
            fill: stacked ? this.color(`color-mix(in srgb, var(--${line.color}) 30%, var(--card))`) : undefined,
            points: { show: false },
            spanGaps: false,
          })),
        ],
        hooks: { setCursor: [(plot) => this.describe(plot.cursor.idx ?? this.data[0].length - 1)] },
      },
      this.drawn(),
      this.canvas,
    );
  }

  /** What a color of the style sheet is in the theme that is shown: a canvas knows no variables. */
  color(value) {
    this.canvas.style.color = value;
    return getComputedStyle(this.canvas).color;
  }

  label(time) {
    const times = this.data[0];
    return clock(time).slice(0, times.at(-1) - times[0] < 300 ? 8 : 5);
  }

  /** Show the values of a moment in the legend, and say what the picture shows. */
  describe(index) {
    const lines = this.data.slice(1);
    this.values.forEach((value, at) => {
      const text = this.spec.unit(lines[at][index]);
      if (value.textContent !== text) value.textContent = text;
    });
    const last = this.data[0].length - 1;
    if (last % 10 && this.canvas.ariaLabel) return;
    const words = this.spec.lines.map((line, at) => {
      const largest = lines[at].reduce((one, other) => Math.max(one, other ?? 0), 0);
      return `${line.label} ${this.spec.unit(lines[at][last])}, at most ${this.spec.unit(largest)}`;
    });
    this.canvas.ariaLabel = `${this.spec.title}. Now: ${words.join("; ")} in ${number((last + 1) / 60)} minutes.`;
    this.fillTable();
  }

  /** Draw again, with the colors of another theme or another width. */
  redraw() {
    this.plot?.destroy();
    this.plot = null;
    if (this.data.length) this.draw();
  }
}

const above = (max) => POWERS.find((one) => one >= max) ?? POWERS.at(-1);
const decades = (_, __, min, max) => POWERS.filter((one) => min <= one && one <= max);
