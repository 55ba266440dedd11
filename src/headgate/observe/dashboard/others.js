// What is shown of masters, routers and prefetch proxies.

import * as parts from "./parts.js";
import { bytes, duration, number, per, percent } from "./series.js";

const { RECENT, card, chart, gauge, lost, perSecond, rate, rows, table } = parts;

function gatesCard(series, received) {
  const gates = series.value("gates");
  const facts = { Connections: number(gates), Requests: per(received) };
  return card("the gates", [[!gates, "warn", "no gate is connected"]], facts);
}

function masterCards(series, now) {
  const checks = [
    ...parts.serverChecks(now),
    lost(series, "unknown", "verdicts are of a domain that is not configured"),
    lost(series, "dropped", "messages were dropped"),
    lost(series, "wrong_clock", "verdicts have a wrong time: a clock differs"),
  ];
  const saved = now?.snapshot_saved ? `${duration(series.time() - now.snapshot_saved)} ago` : "none";
  const stored = number(series.value("identifiers"));
  const all = parts.VERDICTS.reduce((sum, name) => sum + series.sum(name, RECENT), 0);
  const rejected = percent(series.sum("rejected", RECENT), all);
  return [
    gatesCard(series, parts.requests(series, 10)),
    card("this master", checks, { Identifiers: stored, Controls: perSecond(series, "controls"), Rejected: rejected }),
    card("the store", [parts.storeCheck(now)], { State: now?.store ?? "–", Snapshot: saved }),
  ];
}

function showMaster(tables, now, series, acts) {
  parts.showDomains(tables.domains, now, acts, ({ identifiers = 0 }) => [number(identifiers)]);
  tables.gates.show(parts.gateRows(now));
  const counters = Object.entries({ ...now.store_counters, ...now.quotas });
  const plain = counters.filter(([, value]) => typeof value !== "object");
  tables.store.show(plain.map(([name, value]) => [name, [name, typeof value === "number" ? number(value) : value]]));
}

export const master = {
  idle: "No accounting in the last 30 seconds",
  cards: masterCards,
  charts: [
    chart("Requests per second in accounting, by verdict", per, parts.verdicts, { stacked: true }),
    chart("Controls per second", per, [rate("published", "controls", "blue"), rate("dropped", "dropped", "red")]),
    chart("Identifiers", number, [gauge("stored", "identifiers", "blue")]),
    chart("Gates", number, [gauge("connected", "gates", "blue")]),
  ],
  tables: [
    table("domains", "Domains in the last minute", `${parts.DOMAINS}|Identifiers:n|Act`, { wide: true }),
    parts.GATES,
    table("store", "Store and quota service", "Name|Value:n", { empty: "Histories are in memory; no quota service." }),
  ],
  show: showMaster,
};

function routerCards(series, now) {
  const connected = `${number(series.value("masters"))} of ${now ? Object.keys(now.masters).length : "–"}`;
  const dropped = number(series.sum("dropped", RECENT));
  const checks = [...parts.serverChecks(now), lost(series, "dropped", "verdicts were dropped")];
  return [
    gatesCard(series, series.mean("accounted", 10)),
    card("this router", checks, { Received: perSecond(series, "accounted"), Dropped: dropped }),
    card("the masters", [parts.mastersCheck(now)], { Connected: connected, Controls: perSecond(series, "controls") }),
  ];
}

function showRouter(tables, now) {
  const masters = rows(now, "masters").map(([address, [sent, controls, dropped]]) => {
    const counts = [number(sent), number(controls), parts.marked(dropped, "bad")];
    return [address, [address, parts.isUp(now.masters[address]), ...counts]];
  });
  tables.masters.show(masters);
  tables.domains.show(Object.entries(now.domains).map(([name, owner]) => [name, [name, owner || "none is connected"]]));
  tables.gates.show(parts.gateRows(now));
}

export const router = {
  idle: "No accounting in the last 30 seconds",
  cards: routerCards,
  charts: [
    chart("Accounting per second", per, [rate("received", "accounted", "blue"), rate("dropped", "dropped", "red")]),
    chart("Controls per second", per, [rate("passed on", "controls", "blue")]),
  ],
  tables: [
    table("masters", "Masters in the last minute", "Master|State|Sent:n|Controls:n|Dropped:n"),
    table("domains", "Domains, at most 50", "Domain|Master:wrap", { empty: "No accounting was received." }),
    parts.GATES,
  ],
  show: showRouter,
};

function proxyCards(series, now) {
  const [accepted, refused] = ["accepted", "refused"].map((name) => series.sum(name, RECENT));
  const all = accepted + refused;
  const most = now ? rows(now, "refusals")[0]?.[0] : "";
  const share = parts.shareChecks(refused, all, [0.2, 0.6], `of CONNECT requests are refused, mostly: ${most}`);
  const passed = (name) => `${bytes(series.mean(name, 10))}/s`;
  const rates = { "To clients": passed("received"), "From clients": passed("sent") };
  const facts = { Tunnels: number(series.value("tunnels")), ...rates };
  return [
    card("the clients", [share], { Requests: per(all / RECENT), Refused: percent(refused, all) }, !all),
    card("this proxy", parts.serverChecks(now), facts),
  ];
}

function originRow({ origin, result, fresh_for, accepted, refused }) {
  const reasons = Object.entries(refused);
  const total = reasons.reduce((sum, [, times]) => sum + times, 0);
  const text = reasons.map(([reason, times]) => `${reason} ${number(times)}`).join(", ");
  const fresh = fresh_for ? duration(fresh_for) : "–";
  return [origin, [origin, advice(result, fresh_for), fresh, number(accepted), number(total), text]];
}

function advice(result, freshFor) {
  if (typeof result === "string") return result;
  if (!result) return freshFor > 0 ? "none is given" : "not known";
  return result.disallowed ? "disallowed" : `fraction ${percent(result.fraction, 1)}`;
}

const CONNECTS = [rate("refused", "refused", "red"), rate("accepted", "accepted", "blue")];
const ADVICE = "Origin:wrap|Advice|Fresh for:n|Accepted:n|Refused:n|Reasons:wrap";

export const proxy = {
  idle: "No CONNECT request in the last 30 seconds",
  cards: proxyCards,
  charts: [
    chart("CONNECT requests per second", per, CONNECTS, { stacked: true }),
    chart("Open tunnels", number, [gauge("tunnels", "tunnels", "blue")]),
  ],
  tables: [
    table("refusals", "Refusals in the last minute", "Reason|Requests:n", { empty: "None since the start." }),
    table("origins", "Advice and requests by origin, at most 50", ADVICE, { empty: "No origin was requested." }),
  ],
  show(tables, now) {
    tables.refusals.show(rows(now, "refusals").map(([reason, [times]]) => [reason, [reason, number(times)]]));
    tables.origins.show(now.origins.map(originRow));
  },
};
