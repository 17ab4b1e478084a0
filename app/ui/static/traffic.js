// Request rate and latency of the last two minutes, from the service's metrics.
//
// The metrics are totals since the start of the service. Each point of a chart is the difference
// between two samples of them.

const INTERVAL_MS = 2000;
const MAX_POINTS = 60;
const CHART_WIDTH = 240;
const CHART_HEIGHT = 48;
const METRIC = /^inference_(?<name>\w+)(?:{(?<labels>.*)})? (?<value>\S+)$/;

const rates = [];
const medians = [];
let lastSample = null;
let timer = null;

/** Update the charts while the page is visible, and stop if the metrics are not available. */
export function watchTraffic() {
  document.addEventListener("visibilitychange", restart);
  restart();
}

/** Start to take samples if the page is visible, and stop otherwise. */
function restart() {
  clearInterval(timer);
  lastSample = null;
  if (document.visibilityState !== "visible") return;
  timer = setInterval(update, INTERVAL_MS);
  update();
}

/** Take a sample, and show the traffic since the last one. */
async function update() {
  const response = await fetch("metrics").catch(() => null);
  if (response?.status === 503) return; // too many clients read the metrics: skip this sample
  if (!response?.ok) {
    clearInterval(timer);
    return;
  }

  const time = performance.now();
  const sample = { time, ...readMetrics(await response.text()) };
  if (sample.loadSeconds) byId("load").textContent = formatDuration(sample.loadSeconds);
  // The totals are lower if the service has restarted.
  if (lastSample && sample.requests >= lastSample.requests) showTraffic(lastSample, sample);
  lastSample = sample;
}

/**
 * Return the sum of the metrics of infer requests over all of their labels.
 *
 * `buckets` is the histogram of durations: it maps an upper bound in seconds to the number of
 * requests up to it.
 */
function readMetrics(text) {
  const metrics = { requests: 0, failures: 0, buckets: new Map(), loadSeconds: 0 };
  for (const line of text.split("\n")) {
    const match = line.match(METRIC);
    if (!match) continue;
    const { name, labels = "" } = match.groups;
    const value = Number(match.groups.value);

    if (name === "model_load_duration_seconds") metrics.loadSeconds = value;
    if (!labels.includes('operation="infer"')) continue;
    if (name === "requests_total") {
      metrics.requests += value;
      if (!isSuccess(labels)) metrics.failures += value;
    }
    if (name === "request_duration_seconds_bucket") {
      const bound = upperBoundOf(labels);
      const count = metrics.buckets.get(bound) ?? 0;
      metrics.buckets.set(bound, count + value);
    }
  }
  return metrics;
}

/** Return true for the code of a successful request over HTTP or gRPC. */
function isSuccess(labels) {
  return /code="(200|OK)"/.test(labels);
}

function upperBoundOf(labels) {
  const [, bound] = labels.match(/le="([^"]*)"/);
  return bound === "+Inf" ? Infinity : Number(bound);
}

/** Show the traffic between two samples. */
function showTraffic(before, now) {
  const seconds = (now.time - before.time) / 1000;
  const rate = (now.requests - before.requests) / seconds;
  const failureRate = (now.failures - before.failures) / seconds;
  const median = medianOf(bucketsBetween(before, now));

  const rateText = formatNumber(rate);
  byId("rate").textContent = rateText;
  byId("rate-note").textContent = failureRate > 0 ? `${formatNumber(failureRate)} failed` : "";
  byId("latency").textContent = median ? formatDuration(median) : "–";
  byId("traffic").hidden = false;

  const medianLabel = median ? `Median latency: ${formatDuration(median)}.` : "No requests.";
  drawPoint("rate-chart", rates, { value: rate, label: `Now ${rateText} requests per second.` });
  drawPoint("latency-chart", medians, { value: median, label: medianLabel });
}

/** Return the histogram of the requests between two samples, as pairs of bound and count. */
function bucketsBetween(before, now) {
  return [...now.buckets].map(([bound, count]) => {
    const countBefore = before.buckets.get(bound) ?? 0;
    return [bound, count - countBefore];
  });
}

/** Interpolate the median of a histogram with cumulative counts. Return 0 if it is empty. */
function medianOf(buckets) {
  const total = buckets.at(-1)?.[1] ?? 0;
  const half = total / 2;
  if (half === 0) return 0;

  let lowerBound = 0;
  let lowerCount = 0;
  for (const [bound, count] of buckets) {
    if (count < half) {
      lowerBound = bound;
      lowerCount = count;
      continue;
    }
    if (bound === Infinity) return lowerBound;
    return lowerBound + ((bound - lowerBound) * (half - lowerCount)) / (count - lowerCount);
  }
  return lowerBound;
}

/** Add a value to a series, and draw the series as a line whose last point is at the right. */
function drawPoint(id, series, { value, label }) {
  series.push(value);
  if (series.length > MAX_POINTS) series.shift();

  const highest = Math.max(...series) || 1;
  const missingPoints = MAX_POINTS - series.length;
  const points = series.map((height, index) => {
    const x = ((missingPoints + index) * CHART_WIDTH) / (MAX_POINTS - 1);
    // The line keeps a distance of 2 from the lower edge, and of 4 from the upper one.
    const y = CHART_HEIGHT - 2 - (height / highest) * (CHART_HEIGHT - 6);
    return `${x.toFixed(1)} ${y.toFixed(1)}`;
  });

  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", `M${points.join("L")}h0`);
  path.setAttribute("vector-effect", "non-scaling-stroke");
  const chart = byId(id);
  chart.replaceChildren(path);
  chart.setAttribute("aria-label", label);
}

function formatDuration(seconds) {
  return seconds < 1 ? `${formatNumber(seconds * 1000)} ms` : `${formatNumber(seconds)} s`;
}

/** Return a number with two significant digits, or without decimals from 100 on. */
function formatNumber(value) {
  return value >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(2)));
}

function byId(id) {
  return document.getElementById(id);
}
