// The charts: uPlot, with our own legend, and a table as the text alternative.

/* global uPlot */
import { make, makeTable, write } from "./dom.js";
import { clock, number } from "./series.js";

const HEIGHT = 170;
const POWERS = [0.001, 0.01, 0.1, 1, 10, 100]; // the lines of a logarithmic axis

export class Chart {
  /** `unit` writes a value; `lines` have label, color, value(series, index), and may have dash. */
  constructor({ title, unit, lines, stacked = false, log = false }, parent) {
    Object.assign(this, { title, unit, lines, stacked, log, data: [[]], plot: null });
    this.values = lines.map(() => make("b"));
    const keys = lines.map(({ label }, at) => make("li", {}, `${label} `, this.values[at]));
    keys.forEach((key, at) => key.style.setProperty("--key", `var(--${lines[at].color})`));
    const caption = make("figcaption", {}, make("h3", {}, title), make("ul", { className: "legend" }, ...keys));
    this.picture = make("div", { role: "img" });
    const { table, body } = makeTable(
      `${title}: mean of each minute`,
      ["Time", ...lines.map((one) => one.label)].join("|"),
      "",
    );
    this.body = body;
    this.details = make("details", {}, make("summary", { ariaLabel: `${title}: as a table` }, "As a table"), table);
    this.details.addEventListener("toggle", () => this.fillTable());
    parent.append(make("figure", {}, caption, this.picture, this.details));
  }

  /** Fill the table while it is open: a row for each minute, the last one first. */
  fillTable() {
    if (!this.details.open) return;
    const [times, ...lines] = this.data;
    const rows = [];
    for (let end = times.length; end > 0; end -= 60) {
      const cells = lines.map((line) => {
        const known = line.slice(Math.max(0, end - 60), end).filter((value) => value !== null);
        return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
      });
      const head = make("th", { scope: "row" }, clock(times[end - 1]));
      rows.push(make("tr", {}, head, ...cells.map((value) => make("td", {}, this.unit(value)))));
    }
    this.body.replaceChildren(...rows);
  }

  /** Compute all values again. */
  reset(series) {
    const indices = [...series.rows.keys()];
    this.data = [
      indices.map((at) => series.time(at)),
      ...this.lines.map((line) => indices.map((at) => line.value(series, at))),
    ];
    this.draw();
  }

  /** Add the values of the last row. */
  add(series) {
    const last = [series.time(), ...this.lines.map((line) => line.value(series, series.length - 1))];
    this.data.forEach((values, at) => {
      values.push(last[at]);
      if (values.length > series.length) values.shift();
    });
    this.draw();
  }

  draw() {
    const width = this.picture.clientWidth;
    if (!width || !this.data[0].length) return;
    this.plot ??= this.start(width);
    if (this.plot.width !== width) this.plot.setSize({ width, height: HEIGHT });
    this.plot.setData(this.drawn());
    this.describe(this.data[0].length - 1);
  }

  /** The lines as they are drawn: of stacked ones, each upon those after it. */
  drawn() {
    const [times, ...lines] = this.data;
    if (this.log) return [times, ...lines.map((line) => line.map((value) => value && Math.max(value, POWERS[0])))];
    if (!this.stacked) return this.data;
    const sums = lines.map((_, from) =>
      times.map((_, at) => lines.slice(from).reduce((sum, line) => sum + line[at], 0)),
    );
    return [times, ...sums];
  }

  start(width) {
    const color = (name) => this.color(`var(--${name})`);
    const grid = { stroke: color("grid"), width: 1 };
    const axis = { stroke: color("muted"), grid, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const linear = { range: (_, __, max) => [0, Math.max(max ?? 0, 4) * 1.1] };
    const powers = {
      distr: 3,
      range: (_, min, max) => [POWERS.findLast((one) => one <= min) ?? POWERS[0], above(max)],
    };
    const series = this.lines.map((line) => ({
      stroke: color(line.color),
      width: this.stacked ? 1 : 1.5,
      dash: line.dash ? [6, 4] : undefined,
      fill: this.stacked ? this.color(`color-mix(in srgb, var(--${line.color}) 30%, var(--card))`) : undefined,
      points: { show: false },
    }));
    const options = {
      width,
      height: HEIGHT,
      legend: { show: false },
      padding: [8, 26, 0, 0],
      cursor: { y: false, points: { show: false }, drag: { x: false, y: false }, sync: { key: "headgate" } },
      scales: { x: { range: (_, min, max) => [Math.min(min, max - 60), max] }, y: this.log ? powers : linear },
      axes: [
        { ...axis, size: 22, space: 70, values: (_, times) => times.map((time) => this.label(time)) },
        {
          ...axis,
          size: 58,
          space: 28,
          values: (_, values) => values.map(this.unit),
          ...(this.log && { splits: decades }),
        },
      ],
      series: [{}, ...series],
      hooks: { setCursor: [(plot) => this.describe(plot.cursor.idx ?? this.data[0].length - 1)] },
    };
    return new uPlot(options, this.drawn(), this.picture);
  }

  /** What a color of the style sheet is in the theme that is shown: a canvas knows no variables. */
  color(value) {
    this.picture.style.color = value;
    return getComputedStyle(this.picture).color;
  }

  label(time) {
    const times = this.data[0];
    return clock(time).slice(0, times.at(-1) - times[0] < 300 ? 8 : 5);
  }

  /** Show the values of a moment in the legend; say every ten seconds what the picture shows. */
  describe(index) {
    const [times, ...lines] = this.data;
    this.values.forEach((value, at) => write(value, this.unit(lines[at][index])));
    if (times.at(-1) % 10 >= 1 && this.picture.ariaLabel) return;
    const words = this.lines.map(({ label }, at) => {
      const most = lines[at].reduce((one, other) => Math.max(one, other ?? 0), 0);
      return `${label} ${this.unit(lines[at].at(-1))}, at most ${this.unit(most)}`;
    });
    this.picture.ariaLabel = `${this.title} in ${number(times.length / 60)} minutes. Now: ${words.join("; ")}.`;
    this.fillTable();
  }

  /** Draw again, with the colors of another theme or another width. */
  redraw() {
    this.plot?.destroy();
    this.plot = null;
    this.draw();
  }
}

const above = (max) => POWERS.find((one) => one >= max) ?? POWERS.at(-1);
const decades = (_, __, min, max) => POWERS.filter((one) => min <= one && one <= max);
