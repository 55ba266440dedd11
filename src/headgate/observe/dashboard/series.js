// The rows of the last 15 minutes, and what is computed from them: rates, sums and quantiles.

const LENGTH = 900; // rows that are kept, as on the server

export class Series {
  constructor({ columns, bounds, rows }) {
    this.at = Object.fromEntries(columns.map((name, index) => [name, index]));
    this.bounds = bounds;
    this.rows = rows;
  }

  add(row) {
    this.rows.push(row);
    if (this.rows.length > LENGTH) this.rows.shift();
  }

  get length() {
    return this.rows.length;
  }

  time(index = this.length - 1) {
    return this.rows[index]?.[0] ?? 0;
  }

  /** The value of a gauge, or the count of one row. */
  value(name, index = this.length - 1) {
    return this.rows[index]?.[this.at[name]] ?? 0;
  }

  rate(name, index) {
    const seconds = index > 0 ? this.time(index) - this.time(index - 1) : 1;
    return this.value(name, index) / Math.max(0.5, seconds);
  }

  /** The sum of a count over the last rows. */
  sum(name, rows, end = this.length) {
    let total = 0;
    for (let index = Math.max(0, end - rows); index < end; index++) total += this.value(name, index);
    return total;
  }

  /** The rate of a count over the last rows, one a second. */
  mean(name, rows) {
    return this.sum(name, rows) / Math.max(1, Math.min(rows, this.length));
  }

  /** A quantile of a histogram over some rows that end before `end`; null without values. `all` counts zeros, too. */
  quantile(name, q, rows, end = this.length, all = "") {
    const buckets = new Array(this.bounds.length + 1).fill(0);
    let total = 0;
    for (let index = Math.max(0, end - rows); index < end; index++) {
      const counts = this.value(name, index) || [];
      counts.forEach((count, bucket) => (buckets[bucket] += count));
      const values = all ? this.value(all, index) || [] : counts;
      total += values.reduce((sum, count) => sum + count, 0);
    }
    if (!total) return null;
    let rank = q * total - (total - buckets.reduce((sum, count) => sum + count, 0));
    if (rank <= 0) return 0;
    for (let bucket = 0; bucket < this.bounds.length; bucket++) {
      if (rank <= buckets[bucket]) {
        const low = bucket ? this.bounds[bucket - 1] : 0;
        return low + ((this.bounds[bucket] - low) * rank) / buckets[bucket];
      }
      rank -= buckets[bucket];
    }
    return this.bounds.at(-1);
  }
}

// -- text --------------------------------------------------------------------------------------------------------

export function number(value) {
  if (value === null || value === undefined) return "–";
  if (value !== 0 && Math.abs(value) < 10 && !Number.isInteger(value)) return value.toFixed(value < 0.1 ? 2 : 1);
  return Math.round(value).toLocaleString("en");
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (!seconds) return "0 ms";
  if (seconds <= 0.001) return "≤ 1 ms"; // the first bound of the histograms
  if (seconds < 0.9995) return `${seconds < 0.01 ? (seconds * 1000).toFixed(1) : Math.round(seconds * 1000)} ms`;
  if (seconds < 120) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

export function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  for (; value >= 1000 && unit < units.length - 1; unit++) value /= 1000;
  return `${number(value)} ${units[unit]}`;
}

export function percent(part, whole) {
  if (!whole) return "–";
  const share = (100 * part) / whole;
  return `${share > 0 && share < 10 ? share.toFixed(1) : Math.round(share)} %`;
}

export function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}

export const per = (value) => `${number(value)}/s`;
