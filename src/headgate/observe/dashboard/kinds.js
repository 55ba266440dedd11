// What is shown of each kind of server: cards, charts and tables, as data.
//
// A card has a state: ok, warn, bad or idle. Its `reasons` say why; `blame` begins the sentence at the top of the page.

import { bytes, clock, duration, number, per, percent } from "./series.js";

const RECENT = 30; // rows that a state is judged by

const rate = (label, name, color) => ({ label, color, value: (series, index) => series.rate(name, index) });
const gauge = (label, name, color) => ({ label, color, value: (series, index) => series.value(name, index) });
const quantile = (label, name, q, color, all) => ({
  label,
  color,
  value: (series, index) => series.quantile(name, q, 5, index + 1, all),
});
const marked = (value, state) => ({ text: number(value), state: value ? state : "" });
const up = (is, words = ["connected", "not connected"]) => ({ text: words[is ? 0 : 1], state: is ? "" : "bad" });
const rows = (now, table) => Object.entries(now.minute[table]?.rows ?? {});

/** Whether a share is bad or worth a look, as two checks; `text` says what it is. */
const shareChecks = (part, all, [warn, bad], text) => [
  [all > 10 && part > bad * all, "bad", `${percent(part, all)} ${text}`],
  [all > 10 && part > warn * all && part <= bad * all, "warn", `${percent(part, all)} ${text}`],
];

/** A card, from checks: [whether it is so, state, reason]. The worst one is the state. */
function card(title, blame, checks, facts, isIdle = false) {
  const found = ["bad", "warn"].flatMap((state) => checks.filter(([is, of]) => is && of === state));
  const state = found.length ? found[0][1] : isIdle ? "idle" : "ok";
  return { title, blame: `Look at ${blame}`, state, reasons: found.map(([, , reason]) => reason), facts };
}

/** What is wrong with the process itself, whatever it serves. */
function serverChecks(now) {
  if (!now) return [];
  const silent = Object.values(now.workers).filter(([, answers]) => !answers).length;
  const masters = Object.values(now.masters ?? {});
  const down = masters.filter((is) => !is).length;
  return [
    [now.unready, "bad", `it is not ready: ${now.unready}`],
    [silent, "bad", `${silent} of its workers do not answer`],
    [now.store && !["memory", "up"].includes(now.store), "bad", `the store is ${now.store}`],
    [down && down === masters.length, "bad", "no master is connected: no further client is held"],
    [down && down < masters.length, "warn", `${down} of ${masters.length} masters are not connected`],
    [!now.reload_successful, "warn", "the last reload failed, see the log"],
  ];
}

function more(now, table) {
  const { total = 0, rows: shown = {} } = now.minute[table] ?? {};
  const count = Object.keys(shown).length;
  return total > count ? `The ${count} used most of ${number(total)}.` : "";
}

// -- gate --------------------------------------------------------------------------------------------------------

const VERDICTS = ["accepted", "delayed", "rejected"];
const verdictLines = () => VERDICTS.map((name, at) => rate(name, name, ["blue", "amber", "red"][at])).reverse();
const requests = (series, seconds) => VERDICTS.reduce((sum, name) => sum + series.mean(name, seconds), 0);

function clientCard(series) {
  const [accepted, delayed, rejected] = VERDICTS.map((name) => series.sum(name, RECENT));
  const all = accepted + delayed + rejected;
  const usual = requests(series, 900);
  const recent = requests(series, 10);
  const times = `${per(recent)} is ${number(recent / usual)} times the usual rate`;
  return card(
    "Clients",
    "the clients",
    [
      ...shareChecks(rejected, all, [0.05, 0.25], "of requests exceed the rules and are rejected"),
      [series.length > 120 && recent > 10 && recent > 3 * usual, "warn", times],
    ],
    [
      ["Requests", per(recent)],
      ["Rejected", percent(rejected, all)],
      ["Delayed", percent(delayed, all)],
      ["Held", number(series.value("holds"))],
    ],
    !all,
  );
}

function gateCard(series, now) {
  const limit = series.value("limit");
  const limited = number(series.sum("limited", RECENT));
  const dropped = number(series.sum("bus_dropped", RECENT));
  const lag = series.value("bus_lag");
  const inFlight = number(series.value("in_flight"));
  return card(
    "This gate",
    "this gate",
    [
      ...serverChecks(now),
      [limit && limited !== "0", "warn", `the limit of ${number(limit)} in flight refused ${limited} in ${RECENT} s`],
      [dropped !== "0", "warn", `${dropped} verdicts did not reach a master in ${RECENT} s`],
      [lag > 1, "warn", `verdicts wait ${duration(lag)} for a master`],
    ],
    [
      ["Added wait, p99", duration(series.quantile("wait_seconds", 0.99, RECENT, series.length, "seconds"))],
      ["In flight", limit ? `${inFlight} of ${number(limit)}` : inFlight],
      ["Waiting", number(series.value("queued") + series.value("delayed_now"))],
      ["Connections", number(series.value("connections"))],
    ],
  );
}

function originCard(series, now) {
  const classes = ["1xx", "2xx", "3xx", "4xx", "5xx"].map((name) => series.sum(`upstream_${name}`, RECENT));
  const all = classes.reduce((sum, count) => sum + count, 0);
  const failures = series.sum("upstream_failures", RECENT);
  const origins = Object.values(now?.origins ?? {});
  const failed = origins.filter((one) => one.failed);
  const median = series.quantile("upstream_seconds", 0.5, RECENT);
  const usual = series.quantile("upstream_seconds", 0.5, 900);
  const why = failed[0]?.failure ? ` (${failed[0].failure})` : "";
  const some = `${failed.length} of ${origins.length} origins have failed${why}`;
  return card(
    "Origin",
    "the origin",
    [
      [failed.length && failed.length === origins.length, "bad", `it has failed${why}`],
      [failed.length && failed.length < origins.length, "warn", some],
      ...shareChecks(failures, all + failures, [0, 0.05], "of requests fail there"),
      ...shareChecks(classes[4], all, [0.02, 0.2], "of its responses have status 5xx"),
      [median > 2, "bad", `it takes ${duration(median)} to answer`],
      [median > 0.1 && median > 3 * usual, "warn", `it takes ${duration(median)}, usually ${duration(usual)}`],
    ],
    [
      ["Answers, p50", duration(median)],
      ["p99", duration(series.quantile("upstream_seconds", 0.99, RECENT))],
      ["5xx", percent(classes[4], all)],
      ["Failures", number(failures)],
    ],
    !all && !failures,
  );
}

function showDomains(table, now, acts, last) {
  table.show(
    rows(now, "domains").map(([name, [accepted, delayed, rejected, failed]]) => {
      const { rules = [], mode = "–", ...rest } = now.domains[name] ?? {};
      const other = mode === "shadow" ? "enforce" : "shadow";
      const label = `Set domain ${name} to ${other}`;
      const act = acts && rules.length ? { button: `Set to ${other}`, label, act: () => acts.mode(name, other) } : "";
      const errors = failed > 0.02 * (accepted + delayed) ? "bad" : "";
      const counts = [number(accepted), number(delayed), marked(rejected, "warn"), ...last(rest, failed, errors)];
      return [
        name,
        [name, rules.join(", ") || "none", { text: mode, state: mode === "shadow" ? "warn" : "" }, ...counts, act],
      ];
    }),
    more(now, "domains"),
  );
}

function showGate(tables, now, series, acts) {
  showDomains(tables.domains, now, acts, ({ holds }, failed, state) => [marked(failed, state), number(holds)]);
  tables.held.show(
    now.held.map(({ domain, identifier, release }) => {
      const act = { button: "Release", label: `Release ${identifier}`, act: () => acts.release(identifier) };
      const left = duration(Math.max(0, release - series.time()));
      return [`${domain} ${identifier}`, [identifier ?? "hidden", domain, left, acts && identifier ? act : ""]];
    }),
  );
  tables.refused.show(
    now.refused.map(({ time, id, domain, identifier, reason, status, method, path }) => {
      const shown = acts && id ? { button: id, label: `Why: request ${id}`, act: () => acts.why(id) } : id;
      const texts = [String(status || "none"), reason, `${method} ${path}`, identifier ?? "–", domain || "–"];
      return [id + time, [clock(time), ...texts, shown]];
    }),
    acts ? "" : "headgate ctl why REQUEST-ID shows more, with [admin] control = true.",
  );
  tables.origins.show(
    rows(now, "origins").map(([name, [responses, errors, failures, milliseconds]]) => {
      const { failed = false, failure = "", in_flight = 0 } = now.origins[name] ?? {};
      const mean = responses ? duration(milliseconds / responses / 1000) : "–";
      const counts = [
        number(responses),
        marked(errors, errors > 0.02 * responses ? "bad" : ""),
        marked(failures, "bad"),
      ];
      return [name, [name, up(!failed, ["up", "failed"]), ...counts, mean, number(in_flight), failure || "none"]];
    }),
    more(now, "origins"),
  );
  const masters = Object.entries(now.masters).map(([address, is]) => [address, [address, up(is)]]);
  const dropped = number(series.sum("bus_dropped", 900));
  const lag = duration(series.value("bus_lag"));
  tables.bus.show(
    masters.length ? masters : [["", [now.master, "in this gate"]]],
    `Lag ${lag}; ${dropped} verdicts dropped in 15 min; store: ${now.store}.`,
  );
  tables.advice.show(
    now.advice.map(({ user_agent, published, fraction, demand, arrivals, reason }) => {
      const rates = [demand, arrivals].map((value) => (value === null ? "–" : per(value)));
      return [user_agent, [user_agent, percent(published, 1), percent(fraction, 1), ...rates, reason]];
    }),
  );
}

const DOMAINS = ["Domain", ["Rules", "wrap opt"], "Mode", ["Accepted", "n"], ["Delayed", "n"], ["Rejected", "n"]];
const ORIGINS = [
  "Origin",
  "State",
  ["Responses", "n"],
  ["5xx", "n"],
  ["Failures", "n"],
  ["Mean", "n"],
  ["In flight", "n"],
];
const REFUSED = ["Time", "Status", "Reason", ["Request", "wrap"], ["Client", "wrap"], ["Domain", "opt"], "Request id"];
const ADVICE = ["Agents", ["Published", "n"], ["Computed", "n"], ["Demand", "n"], ["Arrivals", "n"], ["Why", "wrap"]];

const gate = {
  idle: "No request in the last 30 seconds",
  cards: (series, now) => [clientCard(series), gateCard(series, now), originCard(series, now)],
  show: showGate,
  charts: [
    { title: "Requests per second, by verdict", unit: per, stacked: true, lines: verdictLines() },
    {
      title: "Responses per second, by status",
      unit: per,
      stacked: true,
      lines: [
        rate("5xx", "status_5xx", "red"),
        rate("4xx", "status_4xx", "amber"),
        rate("none", "status_none", "violet"),
        rate("3xx", "status_3xx", "teal"),
        rate("2xx", "status_2xx", "blue"),
      ],
    },
    {
      title: "Latency",
      unit: duration,
      log: true,
      lines: [
        quantile("all, p50", "seconds", 0.5, "blue"),
        quantile("all, p99", "seconds", 0.99, "red"),
        quantile("origin, p99", "upstream_seconds", 0.99, "violet"),
        quantile("added wait, p99", "wait_seconds", 0.99, "amber", "seconds"),
      ],
    },
    {
      title: "Requests in flight",
      unit: number,
      lines: [
        gauge("at the origin", "in_flight", "blue"),
        { label: "limit", color: "red", dash: true, value: (series, index) => series.value("limit", index) || null },
        gauge("waiting for a permit", "queued", "violet"),
        gauge("delayed by rules", "delayed_now", "amber"),
      ],
    },
  ],
  tables: [
    {
      id: "domains",
      title: "Domains in the last minute",
      wide: true,
      columns: [...DOMAINS, ["Failed", "n"], ["Held", "n"], ""],
    },
    {
      id: "held",
      title: "Clients held longest",
      columns: [["Client", "wrap"], "Domain", ["Time left", "n"], ""],
      empty: "No client is held.",
    },
    { id: "origins", title: "Origins in the last minute", columns: [...ORIGINS, ["Last failure", "wrap"]] },
    {
      id: "refused",
      title: "Last requests refused or failed",
      wide: true,
      columns: REFUSED,
      empty: "None since the start.",
    },
    { id: "bus", title: "Masters", columns: ["Master", "State"] },
    { id: "advice", title: "Traffic advice", columns: ADVICE, empty: "None is published." },
  ],
};

export const KINDS = { gate };
