// What the descriptions of all kinds of server are made of.

import { number, per, percent } from "./series.js";

export const RECENT = 30; // rows that a state is judged by
export const VERDICTS = ["accepted", "delayed", "rejected"];

export const chart = (title, unit, lines, more) => ({ title, unit, lines, ...more });
export const table = (id, title, columns, more) => ({ id, title, columns, ...more });
export const rate = (label, name, color) => ({ label, color, value: (series, index) => series.rate(name, index) });
export const gauge = (label, name, color) => ({ label, color, value: (series, index) => series.value(name, index) });
const COLORS = ["blue", "amber", "red"];
export const verdicts = VERDICTS.map((name, at) => rate(name, name, COLORS[at])).reverse();

export const marked = (value, state) => ({ text: number(value), state: value ? state : "" });
export const isUp = (is, yes = "connected", no = "not connected") => (is ? yes : { text: no, state: "bad" });
export const rows = (now, name) => Object.entries(now.minute[name]?.rows ?? {});
export const requests = (series, seconds) => VERDICTS.reduce((sum, name) => sum + series.mean(name, seconds), 0);

/** A card, from checks: [whether it is so, warn or bad, reason]. The worst one is its state. */
export function card(name, checks, facts, isIdle = false) {
  const found = ["bad", "warn"].flatMap((state) => checks.filter(([is, of]) => is && of === state));
  const state = found[0]?.[1] ?? (isIdle ? "idle" : "ok");
  return { name, state, reasons: found.map(([, , reason]) => reason), facts };
}

/** Whether a share is bad or worth a look; `text` says what it is. */
export function shareChecks(part, all, [warn, bad], text) {
  const reason = `${percent(part, all)} ${text}`;
  return [all > 10 && part > warn * all, part > bad * all ? "bad" : "warn", reason];
}

/** What is wrong with a process, whatever it serves. */
export function serverChecks(now) {
  if (!now) return [];
  const silent = Object.values(now.workers).filter(([, answers]) => !answers).length;
  return [
    [now.unready, "bad", `it is not ready: ${now.unready}`],
    [silent, "bad", `${silent} of its workers do not answer`],
    [!now.reload_successful, "warn", "the last reload failed, see the log"],
  ];
}

export function mastersCheck(now) {
  const all = Object.values(now?.masters ?? {});
  const down = all.filter((is) => !is).length;
  if (down === all.length) return [down, "bad", "no master is connected: no further client is held"];
  return [down, "warn", `${down} of ${all.length} masters are not connected`];
}

export const storeCheck = (now) => [now && !["memory", "up"].includes(now.store), "bad", `the store is ${now?.store}`];

export const lost = (series, name, what) => {
  const count = series.sum(name, RECENT);
  return [count, "warn", `${number(count)} ${what} in ${RECENT} s`];
};

export function more(now, name) {
  const { total = 0, rows: shown = {} } = now.minute[name] ?? {};
  const count = Object.keys(shown).length;
  return total > count ? `The ${count} used most of ${number(total)}.` : "";
}

/** Fill the table of domains; `last` makes the cells after the verdicts. */
export function showDomains(table, now, acts, last) {
  const shown = rows(now, "domains").map(([name, [accepted, delayed, rejected, failed]]) => {
    const { rules = [], mode = "–", ...rest } = now.domains[name] ?? {};
    const other = mode === "shadow" ? "enforce" : "shadow";
    const act = {
      button: `Set to ${other}`,
      label: `Set to ${other}: ${name}`,
      act: () => acts.mode(name, other),
    };
    const errors = marked(failed, failed > 0.02 * (accepted + delayed) ? "bad" : "");
    const first = [name, rules.join(", ") || "none", { text: mode, state: mode === "shadow" ? "warn" : "" }];
    const counts = [number(accepted), number(delayed), marked(rejected, "warn"), ...last(rest, errors)];
    return [name, [...first, ...counts, acts && rules.length ? act : ""]];
  });
  table.show(shown, more(now, "domains"));
}

export const DOMAINS = "Domain|Rules:wrap opt|Mode|Accepted:n|Delayed:n|Rejected:n";
export const GATES = table("gates", "Connected gates", "Key|Connections:n", { empty: "None is connected." });
export const gateRows = (now) => Object.entries(now.gates).map(([key, count]) => [key, [key, number(count)]]);
export const perSecond = (series, name) => per(series.mean(name, 10));
