// Conversion of a response to tables. Outputs with the same number of rows are the columns of one table.

import { imageOf, imageOfPixels, isImage } from "./pictures.js";

const MAX_ROWS = 200;
const MAX_VALUES = 16;
const MAX_CLASSES = 12;
const MAX_TEXT = 300;
const MAX_JSON = 20000;

export function showResponse(target, text, model) {
  const { outputs } = JSON.parse(text, exact);
  const shown = outputs.map((output) => describe(output, model.outputs[output.name]));
  const counts = [...new Set(shown.map((output) => output.rows))];
  const tables = counts.map((rows) => tableOf(rows, shown.filter((output) => output.rows === rows)));
  target.replaceChildren(...tables, jsonOf(text));
}

/** Return the text of an integer that JavaScript would round. */
function exact(key, value, context) {
  const isRounded = Number.isInteger(value) && !Number.isSafeInteger(value);
  return isRounded && context ? context.source : value;
}

function describe(output, declared) {
  const isWhole = !output.shape.length || (output.datatype === "UINT8" && isPicture(output.shape));
  const [rows, ...inner] = isWhole ? [1, ...output.shape] : output.shape;
  const size = inner.reduce((product, each) => product * each, 1);
  const rowOf = (row) => output.data.slice(row * size, (row + 1) * size);
  return { ...output, rows, inner, size, rowOf, kind: kindOf(output, declared, inner, rows) };
}

function kindOf({ datatype, data }, declared, inner, rows) {
  if (datatype === "UINT8" && isPicture(inner)) return "pixels";
  if (datatype === "BYTES" && rows && data.every(isImage)) return "image";
  const width = inner.length === 1 && inner[0] > 1 && declared?.shape.at(-1) > 1 ? inner[0] : 0;
  if (width && /^(FP|BF)/.test(datatype) && rows && sumsToOne(data, width)) return "probabilities";
  return "values";
}

function isPicture([height, width, channels, ...more]) {
  return more.length === 0 && Math.min(height, width) >= 8 && [1, 3, 4].includes(channels);
}

function sumsToOne(data, width) {
  for (let row = 0; row < data.length; row += width) {
    const values = data.slice(row, row + width);
    const sum = values.reduce((a, b) => a + b, 0);
    if (values.some((each) => !(each >= 0 && each <= 1)) || Math.abs(sum - 1) > 0.01) return false;
  }
  return true;
}

function tableOf(rows, outputs) {
  if (rows === 1) {
    const lines = outputs.map((each) => lineOf(each.name, [cell(each, 0)]));
    return scroll("Values", make("table", { className: "single" }, make("tbody", {}, ...lines)));
  }
  const shown = Math.min(rows, MAX_ROWS);
  const names = ["Row", ...outputs.map((each) => each.name)].map((name) => make("th", { scope: "col" }, name));
  const lines = Array.from({ length: shown }, (_, row) => lineOf(String(row), outputs.map((each) => cell(each, row, rows))));
  const count = rows.toLocaleString("en");
  const caption = shown < rows ? `The first ${shown} of ${count} rows.` : `${count} rows.`;
  const head = make("thead", {}, make("tr", {}, ...names));
  return scroll("Rows", make("table", {}, make("caption", {}, caption), head, make("tbody", {}, ...lines)));
}

function lineOf(title, cells) {
  return make("tr", {}, make("th", { scope: "row" }, title), ...cells.map((each) => make("td", {}, each)));
}

/** Wrap a table in a container that scrolls, also with the keyboard. */
function scroll(label, table) {
  return make("div", { className: "scroll", tabIndex: 0, role: "group", ariaLabel: label }, table);
}

function cell(output, row, rows = 1) {
  const values = output.rowOf(row);
  const label = `${output.name}, row ${row}`;
  if (output.kind === "image") return imageOf(values[0], label);
  if (output.kind === "pixels") return imageOfPixels(values, output.inner, label);
  if (output.kind === "probabilities") return rows > 10 ? mostLikely(values) : bars(values);
  const text = values.slice(0, MAX_VALUES).map((each) => shorten(each === null ? "null" : String(each), MAX_TEXT));
  const all = text.join(", ") + (values.length > MAX_VALUES ? ` … ${values.length} in total` : "");
  return make("div", { className: "values" }, ...all.split(/(\s+)/).map(whole));
}

/** Prevent line breaks in words with punctuation, for example dates and negative exponents. */
function whole(word) {
  return /[-/?]/.test(word) ? make("span", {}, word) : word;
}

function mostLikely(values) {
  const best = values.indexOf(Math.max(...values));
  return `${percent(values[best])} ${best}`;
}

/** Return one bar per class in order, or only the most likely classes if there are many. */
function bars(values) {
  const ranked = values.map((value, index) => ({ value, index }));
  const best = Math.max(...values);
  const shown = values.length > MAX_CLASSES ? [...ranked].sort((a, b) => b.value - a.value).slice(0, 10) : ranked;
  const items = shown.map(({ value, index }) => {
    const bar = make("span", { className: "bar" });
    bar.style.setProperty("--share", value);
    const words = [make("span", { className: "class" }, String(index)), bar, make("span", {}, percent(value))];
    return make("li", { className: value === best ? "best" : "", title: String(value) }, ...words);
  });
  if (shown.length < values.length) items.push(make("li", { className: "note" }, `and ${values.length - 10} more`));
  return make("ul", { className: "bars" }, ...items);
}

function percent(value) {
  if (value > 0 && value < 0.0005) return "< 0.1 %";
  if (value < 1 && value > 0.9995) return "> 99.9 %";
  return `${(value * 100).toFixed(1)} %`;
}

function jsonOf(text) {
  const pre = make("pre", { tabIndex: 0, ariaLabel: "Response as JSON" }, shorten(text, MAX_JSON));
  return make("details", {}, make("summary", {}, "JSON"), pre);
}

function shorten(text, length) {
  return text.length > length ? `${text.slice(0, length)} … ${text.length} characters in total` : text;
}

function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}
