// Request rate and latency of the last two minutes, from the service's metrics.

const INTERVAL_MS = 2000;
const POINTS = 60;
const [WIDTH, HEIGHT] = [240, 48];
const LINE = /^inference_(requests_total|request_duration_seconds_bucket|model_load_duration_seconds)(?:{(.*)})? (\S+)$/;

const rates = [];
const medians = [];
let last = null;
let timer = null;

/** Update the charts while the page is visible, and stop if the metrics are not available. */
export function watchTraffic() {
  document.addEventListener("visibilitychange", start);
  start();
}

function start() {
  clearInterval(timer);
  last = null;
  if (document.visibilityState !== "visible") return;
  timer = setInterval(update, INTERVAL_MS);
  update();
}

async function update() {
  const response = await fetch("metrics").catch(() => null);
  if (!response?.ok) return clearInterval(timer);
  const now = { at: performance.now(), ...read(await response.text()) };
  if (now.load) element("load").textContent = duration(now.load);
  if (last && now.requests >= last.requests) show(last, now);
  last = now;
}

/** Sum the metrics of infer requests. `buckets` maps an upper bound in seconds to a cumulative count. */
function read(text) {
  const found = { requests: 0, failed: 0, buckets: new Map(), load: 0 };
  for (const line of text.split("\n")) {
    const [, name, labels = "", value] = line.match(LINE) ?? [];
    if (name === "model_load_duration_seconds") found.load = Number(value);
    if (!labels.includes('operation="infer"')) continue;
    if (name === "requests_total") {
      found.requests += Number(value);
      if (!/code="(200|OK)"/.test(labels)) found.failed += Number(value);
    } else {
      const bound = Number(labels.match(/le="([^"]*)"/)[1].replace("+Inf", "Infinity"));
      found.buckets.set(bound, (found.buckets.get(bound) ?? 0) + Number(value));
    }
  }
  return found;
}

function show(before, now) {
  const seconds = (now.at - before.at) / 1000;
  const rate = (now.requests - before.requests) / seconds;
  const failed = (now.failed - before.failed) / seconds;
  const median = medianOf([...now.buckets].map(([bound, count]) => [bound, count - (before.buckets.get(bound) ?? 0)]));
  element("rate").textContent = round(rate);
  element("rate-note").textContent = failed > 0 ? `${round(failed)} failed` : "";
  element("latency").textContent = median ? duration(median) : "–";
  element("traffic").hidden = false;
  draw("rate-chart", rates, rate, `Now ${round(rate)} requests per second.`);
  draw("latency-chart", medians, median, median ? `Median latency: ${duration(median)}.` : "No requests.");
}

/** Interpolate the median of a histogram with cumulative counts. Return 0 if it is empty. */
function medianOf(counts) {
  const half = (counts.at(-1)?.[1] ?? 0) / 2;
  let [low, below] = [0, 0];
  for (const [bound, count] of half ? counts : []) {
    if (count >= half) return bound === Infinity ? low : low + ((bound - low) * (half - below)) / (count - below);
    [low, below] = [bound, count];
  }
  return low;
}

/** Add `value` to `series` and draw it as a line. */
function draw(id, series, value, label) {
  series.push(value);
  series.splice(0, series.length - POINTS);
  const highest = Math.max(...series) || 1;
  const points = series.map((each, index) => {
    const x = ((POINTS - series.length + index) * WIDTH) / (POINTS - 1);
    return `${x.toFixed(1)} ${(HEIGHT - 2 - (each / highest) * (HEIGHT - 6)).toFixed(1)}`;
  });
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", `M${points.join("L")}h0`);
  path.setAttribute("vector-effect", "non-scaling-stroke");
  element(id).replaceChildren(path);
  element(id).setAttribute("aria-label", label);
}

function duration(seconds) {
  return seconds < 1 ? `${round(seconds * 1000)} ms` : `${round(seconds)} s`;
}

function round(value) {
  return value >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(2)));
}

function element(id) {
  return document.getElementById(id);
}
