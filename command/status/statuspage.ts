/**
 * The status page: one document without further files, which draws the state that `/events` sends each second. It inserts
 * texts of clients by `textContent` only, and its policy allows no script except this one (`statusserver.ts`).
 */
export const statusPage: string = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Fetchway</title>
<link rel="icon" href="data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath d='M1 5h9M6 11h9' stroke='%230f9d76' stroke-width='3' stroke-linecap='round'/%3E%3Ccircle cx='13' cy='5' r='2' fill='%230f9d76'/%3E%3Ccircle cx='3' cy='11' r='2' fill='%230f9d76'/%3E%3C/svg%3E">
<style>
:root {
  color-scheme: light dark;
  --page: light-dark(#f5f6f7, #0e1113);
  --card: light-dark(#fff, #161a1d);
  --line: light-dark(#e3e6e8, #262c30);
  --text: light-dark(#16191c, #e6e9eb);
  --soft: light-dark(#5c666e, #98a3ab);
  --good: light-dark(#087a59, #35c698);
  --info: light-dark(#2a68c8, #6ba5f5);
  --warn: light-dark(#9a5f00, #e2a53c);
  --bad: light-dark(#cc2f3a, #ff6b72);
  --fill: light-dark(#0f9d7626, #35c6982e);
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1.25rem 1.25rem 3rem; background: var(--page); color: var(--text);
  font: 14px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; font-variant-numeric: tabular-nums; }
h1, h2, p, ol, ul, dl, dd { margin: 0; padding: 0; list-style: none; }
header { display: flex; flex-wrap: wrap; align-items: baseline; gap: .25rem .9rem; margin-bottom: 1.1rem; }
h1 { font-size: 1.15rem; font-weight: 650; letter-spacing: -.01em; }
#state { font-weight: 550; }
.dot::before { content: ""; display: inline-block; width: .6rem; height: .6rem; margin-right: .45rem; border-radius: 50%; background: currentColor; }
.dot.idle::before { background: none; box-shadow: inset 0 0 0 1.5px currentColor; }
.good { color: var(--good); } .warn { color: var(--warn); } .bad { color: var(--bad); } .idle { color: var(--soft); }
#about { color: var(--soft); margin-left: auto; }
main { display: grid; grid-template-columns: repeat(12, 1fr); gap: .9rem; transition: opacity .3s; }
main.stale { opacity: .45; }
section { grid-column: span 12; min-width: 0; background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: .95rem 1.1rem 1.05rem; }
h2, caption { font-size: .8rem; font-weight: 600; color: var(--soft); text-align: left; }
[hidden] { display: none; }
.half { grid-column: span 6; } .wide { grid-column: span 8; } .third { grid-column: span 4; }
.head { display: flex; justify-content: space-between; align-items: baseline; gap: .4rem 1.2rem; flex-wrap: wrap; }
.big { font-size: 2.5rem; line-height: 1.15; font-weight: 600; letter-spacing: -.03em; margin: .1rem 0 .6rem; }
.big small { font-size: .95rem; font-weight: 400; letter-spacing: 0; color: var(--soft); margin-left: .3rem; }
.notes { display: flex; gap: .2rem 1.1rem; flex-wrap: wrap; color: var(--soft); }
.notes b { font-weight: 600; color: var(--text); }
.chart { position: relative; }
svg { display: block; width: 100%; overflow: visible; }
#rate, #rate .chart { display: flex; flex-direction: column; } #rate .chart, #rate svg { flex: 1; } #rate svg { height: 7rem; min-height: 7rem; }
#latency svg { height: 6.4rem; }
.base { stroke: var(--line); vector-effect: non-scaling-stroke; }
.ok { fill: var(--good); } .no { fill: var(--bad); }
.mark { stroke: var(--text); stroke-dasharray: 2 3; opacity: .55; vector-effect: non-scaling-stroke; }
.area { fill: var(--fill); } .trace { fill: none; stroke: var(--good); stroke-width: 1.5; vector-effect: non-scaling-stroke; stroke-linejoin: round; }
.axis { position: relative; height: 1.2rem; margin-top: .3rem; color: var(--soft); font-size: .75rem; }
.axis span { position: absolute; transform: translateX(-50%); white-space: nowrap; }
.axis span:first-child.edge { transform: none; } .axis span:last-child.edge { transform: translateX(-100%); }
.labels { position: relative; height: 1.1rem; color: var(--soft); font-size: .72rem; } .labels span { position: absolute; transform: translateX(-50%); }
.tiles { display: grid; grid-template-columns: repeat(4, 1fr); gap: .7rem .6rem; margin-top: .55rem; }
.tiles dt { color: var(--soft); font-size: .78rem; } .tiles dd { font-size: 1.3rem; font-weight: 600; letter-spacing: -.015em; white-space: nowrap; }
.tiles dd small { font-size: .78rem; font-weight: 400; color: var(--soft); letter-spacing: 0; margin-left: .15rem; }
.stack { display: flex; height: .55rem; gap: 2px; border-radius: 4px; overflow: hidden; background: var(--line); margin: .8rem 0 .55rem; }
.stack i { min-width: 2px; }
.s2 { background: var(--good); } .s1, .s3 { background: var(--info); } .s4 { background: var(--warn); } .s5 { background: var(--bad); }
.key { display: flex; flex-wrap: wrap; gap: .15rem 1rem; }
.key li { display: flex; align-items: center; gap: .4rem; } .key i { width: .55rem; height: .55rem; border-radius: 2px; }
.t2 { color: var(--good); } .t1, .t3 { color: var(--info); } .t4 { color: var(--warn); } .t5 { color: var(--bad); }
.next { margin-top: 1.15rem; } .gap { margin-top: .55rem; }
.soft { color: var(--soft); } .none { color: var(--soft); margin-top: .55rem; }
#failures li { display: grid; grid-template-columns: 1fr auto; gap: 0 1.2rem; padding: .6rem 0; border-top: 1px solid var(--line); }
#failures li:first-child { border: 0; padding-top: .65rem; } #failures li:last-child { padding-bottom: 0; }
#failures p { overflow-wrap: anywhere; } #failures code { color: var(--bad); font-weight: 600; margin-right: .5rem; white-space: nowrap; }
#failures .count { text-align: right; font-weight: 600; white-space: nowrap; }
code, .mono { font: .93em/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
table { width: 100%; border-collapse: collapse; margin-top: .35rem; }
th { font-weight: 400; font-size: .78rem; color: var(--soft); text-align: left; padding: .3rem .8rem .3rem 0; white-space: nowrap; }
td { border-top: 1px solid var(--line); padding: .38rem .8rem .38rem 0; white-space: nowrap; }
th:last-child, td:last-child { padding-right: 0; }
.num { text-align: right; }
.path { max-width: 0; width: 99%; overflow: hidden; text-overflow: ellipsis; }
.name { max-width: 0; width: 99%; overflow: hidden; text-overflow: ellipsis; }
.why td { border: 0; padding: 0 0 .45rem 1.05rem; white-space: normal; overflow-wrap: anywhere; }
.scroll { max-height: 26rem; overflow: auto; margin: 0 -.3rem; padding: 0 .3rem; }
td svg { width: 5rem; height: 1.5rem; }
footer { margin-top: 1.1rem; color: var(--soft); display: flex; gap: .2rem 1.1rem; flex-wrap: wrap; }
a { color: inherit; text-underline-offset: .15em; }
a:hover { color: var(--text); }
@media (max-width: 760px) {
  body { padding: .9rem .8rem 2rem; } main { gap: .7rem; }
  .half, .wide, .third { grid-column: span 12; } section { padding: .85rem .9rem .95rem; }
  #about { margin-left: 0; width: 100%; } #failures code { display: block; } .low { display: none; } th, td { padding-right: .6rem; } .name { white-space: normal; overflow-wrap: anywhere; }
}
</style>
</head>
<body>
<header><h1>Fetchway</h1><p id="state"><span role="status">connecting</span><span></span></p><p id="about"></p></header>
<main class="stale">
<section id="upstreams"><div class="scroll" aria-label="Upstreams" role="region"></div></section>
<section class="half" id="routes"><div class="scroll" aria-label="Routes" role="region"></div></section>
<section class="wide" id="rate"></section>
<section class="third" id="now"></section>
<section id="failures"></section>
<section class="half" id="latency"></section>
<section class="half" id="statuses"></section>
<section id="connections"></section>
<section id="requests"></section>
</main>
<footer><a href="/stats">JSON</a><a href="/metrics">Prometheus</a><a href="/healthz">healthz</a><a href="/readyz">readyz</a><noscript>This page needs scripts.</noscript></footer>
<script>
"use strict";
const $ = (id) => document.getElementById(id);

function make(tag, name, ...children) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  element.append(...children.filter((child) => child !== undefined && child !== ""));
  return element;
}
function draw(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const name in attributes) element.setAttribute(name, attributes[name]);
  element.append(...children);
  return element;
}

// Numbers.
const whole = new Intl.NumberFormat("en");
function toRate(rate) {
  return rate >= 100 ? whole.format(Math.round(rate)) : rate >= 10 ? rate.toFixed(1) : String(+rate.toFixed(2));
}
function toShort(count) {
  if (count < 10000) return whole.format(count);
  const unit = count < 999500 ? [1e3, "k"] : count < 999.5e6 ? [1e6, "M"] : [1e9, "G"];
  return (count / unit[0]).toPrecision(3) + unit[1];
}
function splitTime(ms) {
  if (ms < 9.95) return [ms.toFixed(ms < .995 ? 2 : 1), "ms"];
  if (ms < 999.5) return [ms.toFixed(0), "ms"];
  if (ms < 99500) return [(ms / 1000).toFixed(ms < 9950 ? 2 : 1), "s"];
  return [(ms / 60000).toFixed(1), "min"];
}
const toTime = (ms) => splitTime(ms).join(" ");
const splitExact = (ms) => ms < 1000 ? [String(+ms.toFixed(ms < 100 ? 2 : 1)), "ms"] : [(ms / 1000).toFixed(3), "s"];
function toSize(bytes) {
  if (bytes < 1000) return bytes + " B";
  const power = Math.min(4, Math.floor(Math.log10(bytes) / 3));
  return (bytes / 1000 ** power).toPrecision(3) + " " + "kMGT"[power - 1] + "B";
}
function toSpan(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return s + " s";
  if (s < 3600) return Math.floor(s / 60) + " min";
  if (s < 172800) return Math.floor(s / 3600) + " h " + Math.floor((s % 3600) / 60) + " min";
  return Math.floor(s / 86400) + " days";
}
const toClock = (time) => new Date(time).toLocaleTimeString("en-GB");
const toName = (upstream) => upstream.replace(/^http:[/][/]/, "");
const sum = (numbers) => numbers.reduce((all, each) => all + each, 0);
const toShare = (part, all) => all === 0 ? "0 %" : (part / all * 100).toFixed(part > 0 && part / all < .0995 ? 1 : 0) + " %";

function tiles(...pairs) {
  return make("dl", "tiles", ...pairs.map(([name, value, unit, tone]) =>
    make("div", "", make("dt", "", name), make("dd", tone, value, unit ? make("small", "", unit) : undefined))));
}
function notes(...pairs) {
  return make("p", "notes", ...pairs.map(([value, name]) => make("span", "", make("b", "", value), " " + name)));
}
function table(caption, heads, rows) {
  const cell = (tag) => ([content, name]) => make(tag, name, content);
  return make("table", "", make("caption", "", caption), make("thead", "", make("tr", "", ...heads.map(cell("th")))),
    make("tbody", "", ...rows.map((row) => row instanceof Node ? row : make("tr", "", ...row.map(cell("td"))))));
}

// Sections.
function showRate({ recent }) {
  // Leave out the current second, which is not complete.
  const all = recent.requests.slice(0, -1), failed = recent.failed.slice(0, -1);
  const seconds = Math.max(1, Math.min(all.length, recent.seconds - 1)), few = Math.min(5, seconds);
  const peak = Math.max(...all), top = Math.max(peak, 1);
  const chart = draw("svg", { viewBox: "0 0 590 100", preserveAspectRatio: "none", role: "img",
    "aria-label": "requests a second in the last minute, at most " + peak });
  chart.append(draw("line", { class: "base", x1: 0, x2: 590, y1: 100, y2: 100 }));
  all.forEach((count, i) => {
    if (count === 0) return;
    const height = Math.max(1.5, count / top * 100), low = failed[i] === 0 ? 0 : Math.max(1.5, failed[i] / top * 100);
    if (height > low) chart.append(draw("rect", { class: "ok", x: i * 10 + 1, width: 8, y: 100 - height, height: height - low }));
    if (low > 0) chart.append(draw("rect", { class: "no", x: i * 10 + 1, width: 8, y: 100 - low, height: low }));
  });
  const edge = (text) => make("span", "edge", text);
  const axis = make("div", "axis", edge("1 minute ago"), edge("now"));
  axis.lastChild.style.left = "100%";
  $("rate").replaceChildren(
    make("div", "head", make("h2", "", "Requests, last minute"), notes([toRate(sum(all) / seconds) + "/s", "on average"], [toRate(peak) + "/s", "at most"])),
    make("p", "big", toRate(sum(all.slice(-few)) / few), make("small", "", "a second, last " + few + " s")),
    make("div", "chart", chart, axis));
}
function showNow({ total, connections, memory }) {
  $("now").replaceChildren(make("h2", "", "Since the start"),
    tiles(["requests", toShort(total.requests)], ["failed", toShort(total.failed), "", total.failed > 0 ? "bad" : ""],
      ["retries", toShort(total.retries)], ["tunnels", toShort(total.tunnels)],
      ["sent", ...toSize(total.bytesOut).split(" ")], ["received", ...toSize(total.bytesIn).split(" ")],
      ["memory", ...toSize(memory).split(" ")], ["connections", connections ? toShort(connections.created) : "–"]),
    ...(connections ? [make("h2", "next", "Connections now"),
      tiles(["in use", toShort(connections.inUse)], ["idle", toShort(connections.free)], ["tunnels", toShort(connections.open)],
        ["waiting", toShort(connections.waiting), "", connections.waiting > 0 ? "warn" : ""],
        ...(connections.held === undefined ? [] : [["held", toShort(connections.held), "", connections.held > 0 ? "warn" : ""]]))] : []));
}
function showLatency({ recent: { latencies, percentiles } }) {
  const section = $("latency"), title = make("h2", "", "Time to the response headers, last minute");
  if (!percentiles) return section.replaceChildren(title, make("p", "none", "No requests in the last minute."));
  // Each bar is half an octave wide. Draw at least ten bars, so that few latencies do not fill the chart.
  const first = Math.log2(latencies[0][0]) * 2 - 1, count = Math.max(latencies.length, 10);
  const from = first - Math.floor((count - latencies.length) / 2);
  const at = (ms) => (Math.log2(ms) * 2 - from) / count * 100;
  const top = Math.max(...latencies.map(([, n]) => n));
  const chart = draw("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img",
    "aria-label": "histogram; half of the requests took less than " + toTime(percentiles.p50) });
  latencies.forEach(([below, n]) => {
    const height = n === 0 ? 0 : Math.max(1.5, n / top * 100), width = 100 / count;
    chart.append(draw("rect", { class: "ok", x: at(below) - width * .94, width: width * .88, y: 100 - height, height }));
  });
  chart.append(draw("line", { class: "base", x1: 0, x2: 100, y1: 100, y2: 100 }));
  const labels = make("div", "labels");
  let right = -Infinity;
  for (const [name, label] of [["p50", "median"], ["p90", "p90"], ["p99", "p99"]]) {
    const x = at(percentiles[name]);
    chart.append(draw("line", { class: "mark", x1: x, x2: x, y1: 0, y2: 100 }));
    if (x < right + 9) continue;
    right = x;
    const tag = make("span", "", label);
    tag.style.left = x + "%";
    labels.append(tag);
  }
  const axis = make("div", "axis");
  for (let ms = .1; ms < 2e6; ms *= 10) {
    const x = at(ms);
    if (x < 1 || x > 97) continue;
    const tick = make("span", "", ms < 1000 ? +ms.toPrecision(1) + " ms" : ms / 1000 + " s");
    tick.style.left = x + "%";
    axis.append(tick);
  }
  section.replaceChildren(title,
    tiles(...[["median", "p50"], ["p90", "p90"], ["p99", "p99"]].map(([name, p]) => [name, ...splitTime(percentiles[p])]), ["max", ...splitExact(percentiles.max)]),
    make("div", "gap", labels, chart, axis));
}
function showStatuses({ recent: { statuses }, errors }) {
  const all = sum(Object.values(statuses)), stack = make("div", "stack"), key = make("ul", "key");
  for (const [name, count] of Object.entries(statuses)) {
    if (count === 0) continue;
    const part = make("i", "s" + name[0]);
    part.style.flexGrow = count;
    stack.append(part);
    key.append(make("li", "", make("i", "s" + name[0]), name, make("b", "", toShort(count)), make("span", "soft", toShare(count, all))));
  }
  const codes = Object.entries(errors).sort(([, one], [, other]) => other - one).slice(0, 8);
  $("statuses").replaceChildren(make("h2", "", "Statuses, last minute"), stack,
    all === 0 ? make("p", "soft", "No requests in the last minute.") : key,
    make("div", "next", table("Errors since the start", [],
      codes.length === 0 ? [[["None.", "soft"]]] : codes.map(([code, count]) => [[make("code", "", code), "path"], [whole.format(count), "num"]]))));
}
function showFailures({ failures }) {
  $("failures").hidden = failures.length === 0;
  $("failures").replaceChildren(make("h2", "", "Failures since the start, cause and fix"), make("ol", "", ...failures.map((each) =>
    make("li", "", make("p", "", make("code", "", each.status + " " + each.code), each.cause),
      make("p", "count", whole.format(each.count) + " ×"),
      make("p", "soft", each.fix || ""), make("p", "soft num", toSpan(each.ago) + " ago")))));
}
function sparkline(counts) {
  const points = counts.slice(0, -1), top = Math.max(...points, 1), step = 100 / (points.length - 1);
  const line = points.map((count, i) => (i * step).toFixed(1) + "," + (29 - count / top * 27).toFixed(1)).join(" ");
  return draw("svg", { viewBox: "0 0 100 30", preserveAspectRatio: "none", "aria-hidden": "true" },
    draw("polygon", { class: "area", points: "0,30 " + line + " 100,30" }), draw("polyline", { class: "trace", points: line }));
}
// The colours of states; the other states are good.
const TONES = { idle: "idle", starting: "warn", stopping: "warn", degraded: "warn", draining: "warn", "half-open": "warn",
  failing: "bad", ejected: "bad", down: "bad" };
const toneOf = (state) => TONES[state] || "good";
function dot({ state }) {
  const mark = make("span", "dot " + toneOf(state));
  mark.title = state;
  mark.role = "img";
  mark.ariaLabel = state;
  return mark;
}
function showTraffic(id, title, rows, { recent, startedAt, uptime }) {
  const seconds = Math.max(1, Math.min(59, recent.seconds - 1));
  const rank = ({ condition }) => ["idle", "good", "warn", "bad"].indexOf(toneOf(condition.state));
  const box = $(id).firstElementChild;
  box.replaceChildren(table(title + ", last minute",
    [["", "name"], ["", "low"], ["req/s", "num"], ["average", "num"], ["failed", "num"]],
    [...rows].sort((one, other) => rank(other) - rank(one)).flatMap((each) => {
      const { state, reason, since } = each.condition, tone = toneOf(state);
      const row = [[make("span", "", dot(each.condition), toName(each.name)), "name"], [sparkline(each.recent), "low"],
        [toRate(sum(each.recent.slice(0, -1)) / seconds), "num"], [each.average === undefined ? "–" : toTime(each.average), "num"],
        [toShort(each.recentFailed), "num" + (each.recentFailed > 0 ? " bad" : "")]];
      if (tone === "good" || tone === "idle") return [row];
      const when = since === undefined ? "" : " since " + toClock(since) + " (" + toSpan(startedAt + uptime - since) + ")";
      const cell = make("td", "", make("b", tone, state), when + (reason ? ": " + reason : ""));
      cell.colSpan = 5;
      return [row, make("tr", "why", cell)];
    })));
  // Not every browser lets the keyboard reach an element that scrolls.
  box.tabIndex = box.scrollHeight > box.clientHeight ? 0 : -1;
}
function showUpstreams(all) {
  const { upstreams, routes } = all;
  $("upstreams").hidden = upstreams.length === 0;
  $("routes").hidden = routes.length < 2;
  $("upstreams").className = routes.length < 2 ? "" : "half";
  showTraffic("upstreams", "Upstreams", upstreams, all);
  showTraffic("routes", "Routes", routes, all);
}
function showConnections({ upstreams }) {
  $("connections").hidden = upstreams.length === 0;
  $("connections").replaceChildren(table("Connections to upstreams, now",
    [["", "name"], ["in use", "num"], ["idle", "num"], ["waiting", "num"], ["tunnels", "num"]],
    upstreams.map(({ name, inUse, free, waiting, tunnels }) => [[toName(name), "name"],
      [inUse, "num"], [free, "num"], [waiting, "num" + (waiting > 0 ? " warn" : "")], [tunnels, "num"]])));
}
function showRequests({ requests }) {
  $("requests").replaceChildren(requests.length === 0 ? make("p", "none", "No requests yet.") : table("Last " + requests.length + " requests",
    [["time", ""], ["", ""], ["path", "path"], ["upstream", "low"], ["client", "low"], ["status", "num"], ["took", "num"], ["size", "num low"]],
    requests.map((each) => [
      [toClock(each.time), "soft"], [each.method, ""],
      [make("span", "", make("span", "mono", each.path), make("span", "soft", each.protocol ? "  " + each.protocol : each.code ? "  " + each.code : "")), "path"],
      [each.upstream ? toName(each.upstream) : "–", "low soft"], [each.client || "–", "low soft"],
      [each.status, "num t" + String(each.status)[0]], [toTime(each.ms), "num"], [each.bytes === undefined ? "–" : toSize(each.bytes), "num low"]])));
}

// Events.
let last;
function showAll() {
  if (last === undefined || document.hidden) return;
  const { overall, version, runtime, uptime, workers } = last;
  setState(overall.state, toneOf(overall.state), overall.reasons.join(", "));
  document.querySelector("main").className = "";
  $("about").textContent = "for " + toSpan(uptime) + " · " + version + " on " + runtime + (workers ? " · " + workers.running + " workers" : "");
  for (const part of [showUpstreams, showRate, showNow, showFailures, showLatency, showStatuses, showConnections, showRequests]) part(last);
}
function setState(state, tone, reasons) {
  const [name, why] = $("state").children;
  $("state").className = "dot " + tone;
  // Screen readers announce changes of the element with the state. The numbers in the reasons are in another element.
  if (name.textContent !== state) name.textContent = state;
  why.textContent = reasons && ": " + reasons;
}
const events = new EventSource("/events");
events.onmessage = ({ data }) => { last = JSON.parse(data); showAll(); };
events.onerror = () => {
  setState("no connection", "bad", "");
  document.querySelector("main").className = "stale";
};
document.addEventListener("visibilitychange", showAll);
</script>
</body>
</html>
`;
