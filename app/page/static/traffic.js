// What the service's own metrics say of the last two minutes.

const EVERY = 2000;
const POINTS = 60;
const [WIDTH, HEIGHT] = [240, 48];
const LINE = /^inference_(requests_total|request_seconds_bucket|model_load_seconds)(?:{(.*)})? (\S+)$/;

const rates = [];
const medians = [];
const slows = [];
let last = null;
let timer = null;

/** Draws while the page is looked at; where metrics cannot be had, there is nothing to see, and no more asking. */
export function watchTraffic() {
  const look = () => {
    clearInterval(timer);
    timer = null;
    last = null;
    if (document.visibilityState !== "visible") return;
    timer = setInterval(update, EVERY);
    update();
  };
  document.addEventListener("visibilitychange", look);
  look();
}

async function update() {
  const answer = await fetch("metrics").catch(() => null);
  if (!answer?.ok) {
    clearInterval(timer);
    return;
  }
  const now = { at: performance.now(), ...read(await answer.text()) };
  if (now.load) element("load").textContent = now.load < 1 ? `${Math.round(now.load * 1000)} ms` : `${now.load.toFixed(1)} s`;
  if (last && now.requests >= last.requests) add(last, now);
  last = now;
}

function read(text) {
  const found = { requests: 0, failed: 0, buckets: new Map(), load: 0 };
  for (const line of text.split("\n")) {
    const [, name, labels = "", value] = line.match(LINE) ?? [];
    if (name === "model_load_seconds") found.load = Number(value);
    if (!labels.includes('method="ModelInfer"')) continue;
    if (name === "requests_total") {
      found.requests += Number(value);
      if (!/status="(200|OK)"/.test(labels)) found.failed += Number(value);
    } else {
      const bound = Number(labels.match(/le="([^"]*)"/)[1].replace("+Inf", "Infinity"));
      found.buckets.set(bound, (found.buckets.get(bound) ?? 0) + Number(value));
    }
  }
  return found;
}

function add(before, now) {
  const seconds = (now.at - before.at) / 1000;
  const rate = (now.requests - before.requests) / seconds;
  const counts = [...now.buckets].map(([bound, count]) => [bound, count - (before.buckets.get(bound) ?? 0)]);
  const [median, slow] = [0.5, 0.95].map((share) => quantile(counts, share));
  for (const [series, value] of [[rates, rate], [medians, median], [slows, slow]]) {
    series.push(value);
    series.splice(0, series.length - POINTS);
  }
  const failed = (now.failed - before.failed) / seconds;
  element("traffic").hidden = false;
  element("rate").textContent = round(rate);
  element("failed").textContent = failed > 0 ? `${round(failed)} of them failed` : "";
  element("median").textContent = median === null ? "–" : time(median);
  element("slow").textContent = slow === null ? "no requests just now" : `median; 95 % within ${time(slow)}`;
  const highest = Math.max(...rates);
  draw("rate-chart", [rates], `Now ${round(rate)} a second, at most ${round(highest)} in two minutes.`);
  draw("latency-chart", [medians, slows], median === null ? "No request just now." : `Half within ${time(median)}.`);
}

/** The value that `share` of the requests were within, by the buckets' cumulative counts; null where there were none. */
function quantile(counts, share) {
  const total = counts.at(-1)?.[1] ?? 0;
  if (!total) return null;
  const wanted = total * share;
  let [low, below] = [0, 0];
  for (const [bound, count] of counts) {
    if (count >= wanted) return bound === Infinity ? low : low + ((bound - low) * (wanted - below)) / (count - below);
    [low, below] = [bound, count];
  }
  return low;
}

function draw(id, lines, words) {
  const highest = Math.max(...lines.flat().filter((value) => value !== null), 1e-9);
  const paths = lines.map((values) => {
    const start = POINTS - values.length;
    const point = (value, index) => {
      const x = ((start + index) * WIDTH) / (POINTS - 1);
      const y = HEIGHT - 2 - (value / highest) * (HEIGHT - 6);
      const begins = index === 0 || values[index - 1] === null;
      return `${begins ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}${begins ? "h0" : ""}`;
    };
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", values.map((value, index) => (value === null ? "" : point(value, index))).join(""));
    path.setAttribute("vector-effect", "non-scaling-stroke");
    return path;
  });
  element(id).replaceChildren(...paths);
  element(id).setAttribute("aria-label", words);
}

function time(seconds) {
  return seconds < 1 ? `${round(seconds * 1000)} ms` : `${round(seconds)} s`;
}

function round(value) {
  return value >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(2)));
}

function element(id) {
  return document.getElementById(id);
}
