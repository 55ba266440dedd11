// What is shown of a gate.

import * as parts from "./parts.js";
import { clock, duration, number, per, percent } from "./series.js";

const { RECENT, card, chart, gauge, isUp, marked, rate, rows, table } = parts;

function quantile(label, name, q, color, all) {
  return { label, color, value: (series, index) => series.quantile(name, q, 5, index + 1, all) };
}

function clients(series) {
  const [accepted, delayed, rejected] = parts.VERDICTS.map((name) => series.sum(name, RECENT));
  const all = accepted + delayed + rejected;
  const usual = parts.requests(series, 900);
  const recent = parts.requests(series, 10);
  const times = `${per(recent)} is ${number(recent / usual)} times the usual rate`;
  const checks = [
    parts.shareChecks(rejected, all, [0.05, 0.25], "of requests exceed the rules and are rejected"),
    [series.length > 120 && recent > 10 && recent > 3 * usual, "warn", times],
  ];
  const shares = { Rejected: percent(rejected, all), Delayed: percent(delayed, all) };
  const facts = { Requests: per(recent), ...shares, Held: number(series.value("holds")) };
  return card("the clients", checks, facts, !all);
}

function thisGate(series, now) {
  const limit = series.value("limit");
  const lag = series.value("bus_lag");
  const inFlight = number(series.value("in_flight"));
  const checks = [
    ...parts.serverChecks(now),
    parts.mastersCheck(now),
    parts.storeCheck(now),
    parts.lost(series, "limited", `requests were refused by the limit of ${number(limit)} in flight`),
    parts.lost(series, "bus_dropped", "verdicts did not reach a master"),
    [lag > 1, "warn", `verdicts wait ${duration(lag)} for a master`],
  ];
  return card("this gate", checks, {
    "Wait, p99": duration(series.quantile("wait_seconds", 0.99, RECENT, series.length, "seconds")),
    "In flight": limit ? `${inFlight} of ${number(limit)}` : inFlight,
    Waiting: number(series.value("queued") + series.value("delayed_now")),
    Connections: number(series.value("connections")),
  });
}

function origin(series, now) {
  const classes = ["1xx", "2xx", "3xx", "4xx", "5xx"].map((name) => series.sum(`upstream_${name}`, RECENT));
  const all = classes.reduce((sum, count) => sum + count, 0);
  const failures = series.sum("upstream_failures", RECENT);
  const origins = Object.values(now?.origins ?? {});
  const failed = origins.filter((one) => one.failed);
  const median = series.quantile("upstream_seconds", 0.5, RECENT);
  const usual = series.quantile("upstream_seconds", 0.5, 900);
  const what = failed.length === origins.length ? "it has failed" : `${failed.length} of ${origins.length} have failed`;
  const checks = [
    [
      failed.length,
      failed.length === origins.length ? "bad" : "warn",
      `${what} (${failed[0]?.failure || "no reason"})`,
    ],
    parts.shareChecks(failures, all + failures, [0, 0.05], "of requests fail there"),
    parts.shareChecks(classes[4], all, [0.02, 0.2], "of its responses have status 5xx"),
    [median > 2, "bad", `it takes ${duration(median)} to answer`],
    [median > 0.1 && median > 3 * usual, "warn", `it takes ${duration(median)}, usually ${duration(usual)}`],
  ];
  const latency = {
    "Answer, p50": duration(median),
    p99: duration(series.quantile("upstream_seconds", 0.99, RECENT)),
  };
  const counts = { "5xx": percent(classes[4], all), Failures: number(failures) };
  return card("the origin", checks, { ...latency, ...counts }, !all && !failures);
}

function heldRow({ domain, identifier, release }, time, acts) {
  const act = { button: "Release", label: `Release ${identifier}`, act: () => acts.release(identifier) };
  const left = duration(Math.max(0, release - time));
  return [`${domain} ${identifier}`, [identifier ?? "hidden", domain, left, acts && identifier ? act : ""]];
}

function refusedRow({ time, id, domain, identifier, reason, status, method, path }, acts) {
  const shown = acts && id ? { button: id, label: `Why: request ${id}`, act: () => acts.why(id) } : id;
  const texts = [String(status || "none"), reason, `${method} ${path}`, identifier ?? "–", domain || "–"];
  return [id + time, [clock(time), ...texts, shown]];
}

function originRow(name, [responses, errors, failures, milliseconds], details) {
  const { failed = false, failure = "", in_flight = 0 } = details ?? {};
  const mean = responses ? duration(milliseconds / responses / 1000) : "–";
  const counts = [number(responses), marked(errors, errors > 0.02 * responses ? "bad" : ""), marked(failures, "bad")];
  return [name, [name, isUp(!failed, "up", "failed"), ...counts, mean, number(in_flight), failure || "none"]];
}

function adviceRow({ user_agent, published, fraction, demand, arrivals, reason }) {
  const rates = [demand, arrivals].map((value) => (value === null ? "–" : per(value)));
  return [user_agent, [user_agent, percent(published, 1), percent(fraction, 1), ...rates, reason]];
}

function show(tables, now, series, acts) {
  parts.showDomains(tables.domains, now, acts, ({ holds = 0 }, errors) => [errors, number(holds)]);
  const known = now.identifiers === "plain" && acts; // a hash does not name a client
  tables.held.show(now.held.map((one) => heldRow(one, series.time(), known)));
  const hint = acts ? "" : "headgate ctl why REQUEST-ID shows more, with [admin] control = true.";
  tables.refused.show(
    now.refused.map((one) => refusedRow(one, acts)),
    hint,
  );
  const origins = rows(now, "origins").map(([name, counts]) => originRow(name, counts, now.origins[name]));
  tables.origins.show(origins, parts.more(now, "origins"));
  const masters = Object.entries(now.masters).map(([address, is]) => [address, [address, isUp(is)]]);
  const dropped = `${number(series.sum("bus_dropped", 900))} verdicts dropped in 15 min`;
  const note = `Lag ${duration(series.value("bus_lag"))}; ${dropped}; store: ${now.store}.`;
  tables.bus.show(masters.length ? masters : [["", [now.master, "in this gate"]]], note);
  tables.advice.show(now.advice.map(adviceRow));
}

const STATUS = { "5xx": "red", "4xx": "amber", none: "violet", "3xx": "teal", "2xx": "blue" };
const FLIGHT = [gauge("at the origin", "in_flight", "blue"), gauge("waiting for a permit", "queued", "violet")];
const LIMIT = {
  label: "limit",
  color: "red",
  dash: true,
  value: (series, index) => series.value("limit", index) || null,
};
const LATENCY = [
  quantile("all, p50", "seconds", 0.5, "blue"),
  quantile("all, p99", "seconds", 0.99, "red"),
  quantile("origin, p99", "upstream_seconds", 0.99, "violet"),
  quantile("added wait, p99", "wait_seconds", 0.99, "amber", "seconds"),
];
const statuses = Object.entries(STATUS).map(([name, color]) => rate(name, `status_${name}`, color));
const ORIGINS = "Origin|State|Responses:n|5xx:n|Failures:n|Mean:n|In flight:n|Last failure:wrap";
const REFUSED = "Time|Status|Reason|Request:wrap|Client:wrap|Domain:opt|Request id";
const ADVICE = "Agents|Published:n|Computed:n|Demand:n|Arrivals:n|Why:wrap";

export const gate = {
  idle: "No request in the last 30 seconds",
  cards: (series, now) => [clients(series), thisGate(series, now), origin(series, now)],
  charts: [
    chart("Requests per second, by verdict", per, parts.verdicts, { stacked: true }),
    chart("Responses per second, by status", per, statuses, { stacked: true }),
    chart("Latency", duration, LATENCY, { log: true }),
    chart("Requests in flight", number, [...FLIGHT, gauge("delayed by rules", "delayed_now", "amber"), LIMIT]),
  ],
  tables: [
    table("domains", "Domains in the last minute", `${parts.DOMAINS}|Failed:n|Held:n|Act`, { wide: true }),
    table("held", "Clients held longest", "Client:wrap|Domain|Time left:n|Act", { empty: "No client is held." }),
    table("origins", "Origins in the last minute", ORIGINS),
    table("refused", "Last requests refused or failed", REFUSED, { wide: true, empty: "None since the start." }),
    table("bus", "Masters", "Master|State"),
    table("advice", "Traffic advice", ADVICE, { empty: "None is published." }),
  ],
  show,
};
