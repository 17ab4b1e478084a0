// Conversion of a response to tables.
//
// The first dimension of an output is its number of rows. A scalar and a single picture have one
// row. Outputs with the same number of rows are the columns of one table, and the values of a row
// are one cell. How a cell looks depends on the kind of the column:
//
//   pixels          a picture of UINT8 with the shape [height, width, channels]
//   image           BYTES that are images in base64
//   probabilities   numbers of which each row sums to 1
//   values          all others, as text

import { imageOf, imageOfPixels, isImage } from "./pictures.js";

const MAX_ROWS = 200;
const MAX_VALUES = 16;
const MAX_TEXT = 300;
const MAX_JSON = 20000;
// A longer table shows the most likely class of each row instead of bars.
const MAX_ROWS_OF_BARS = 10;
// With more classes, only the most likely ones have bars.
const MAX_CLASSES = 12;
const MOST_LIKELY_CLASSES = 10;
const MIN_PICTURE_SIZE = 8;
const CHANNELS = [1, 3, 4];

/** Show the text of a response as tables and as JSON. */
export function showResponse(target, text, model) {
  const { outputs } = JSON.parse(text, keepDigits);
  const columns = outputs.map((output) => columnOf(output, model.outputs[output.name]));
  const rowCounts = new Set(columns.map((column) => column.rowCount));

  const tables = [];
  for (const rowCount of rowCounts) {
    const group = columns.filter((column) => column.rowCount === rowCount);
    tables.push(rowCount === 1 ? singleRowTable(group) : multiRowTable(group, rowCount));
  }
  target.replaceChildren(...tables, jsonOf(text));
}

/**
 * Return the text of an integer that JavaScript would round, and other values as they are. This is
 * a reviver of JSON.parse(). Older browsers pass no `context`, which has the text.
 */
function keepDigits(key, value, context) {
  const isRounded = Number.isInteger(value) && !Number.isSafeInteger(value);
  return isRounded && context ? context.source : value;
}

/** Return an output as a column. `declared` is the output in the model's metadata, if any. */
function columnOf(output, declared) {
  const { name, datatype, shape, data } = output;
  const isScalar = shape.length === 0;
  const isOneRow = isScalar || (datatype === "UINT8" && isPicture(shape));
  const [rowCount, ...rowShape] = isOneRow ? [1, ...shape] : shape;
  const rowSize = rowShape.reduce((product, size) => product * size, 1);
  const column = { name, datatype, data, rowCount, rowShape, rowSize };
  return { ...column, kind: kindOf(column, declared) };
}

/** Return the kind of a column, as listed above. */
function kindOf({ datatype, data, rowCount, rowShape }, declared) {
  if (datatype === "UINT8" && isPicture(rowShape)) return "pixels";
  if (rowCount === 0) return "values";
  if (datatype === "BYTES" && data.every(isImage)) return "image";

  // A column of a variable number of values has no classes, even if they happen to sum to 1.
  const hasClasses = rowShape.length === 1 && rowShape[0] > 1 && declared?.shape.at(-1) > 1;
  const isFloat = /^(FP|BF)/.test(datatype);
  if (isFloat && hasClasses && rowsSumToOne(data, rowShape[0])) return "probabilities";
  return "values";
}

/** Return true for the shape [height, width, channels] of a picture that is not tiny. */
function isPicture(shape) {
  if (shape.length !== 3) return false;
  const [height, width, channels] = shape;
  return Math.min(height, width) >= MIN_PICTURE_SIZE && CHANNELS.includes(channels);
}

/** Return true if each row contains probabilities that sum to 1, up to rounding. */
function rowsSumToOne(data, rowSize) {
  for (let start = 0; start < data.length; start += rowSize) {
    const row = data.slice(start, start + rowSize);
    if (!row.every((value) => value >= 0 && value <= 1)) return false;
    const sum = row.reduce((total, value) => total + value, 0);
    if (Math.abs(sum - 1) > 0.01) return false;
  }
  return true;
}

/** Return a table of columns with one row: each column becomes a line. */
function singleRowTable(columns) {
  const lines = columns.map((column) => lineOf(column.name, [cellOf(column, 0)]));
  const table = make("table", { className: "single" }, make("tbody", {}, ...lines));
  return scrollable("Values", table);
}

/** Return a table of columns with `rowCount` rows. */
function multiRowTable(columns, rowCount) {
  const visibleCount = Math.min(rowCount, MAX_ROWS);
  const titles = ["Row", ...columns.map((column) => column.name)];
  const headers = titles.map((title) => make("th", { scope: "col" }, title));
  const lines = [];
  for (let row = 0; row < visibleCount; row++) {
    const cells = columns.map((column) => cellOf(column, row));
    lines.push(lineOf(String(row), cells));
  }

  const count = rowCount.toLocaleString("en");
  const isComplete = visibleCount === rowCount;
  const caption = isComplete ? `${count} rows.` : `The first ${visibleCount} of ${count} rows.`;
  const table = make(
    "table",
    {},
    make("caption", {}, caption),
    make("thead", {}, make("tr", {}, ...headers)),
    make("tbody", {}, ...lines),
  );
  return scrollable("Rows", table);
}

/** Return a row of an HTML table with a header cell. */
function lineOf(title, contents) {
  const header = make("th", { scope: "row" }, title);
  const cells = contents.map((content) => make("td", {}, content));
  return make("tr", {}, header, ...cells);
}

/** Wrap a table in a container that scrolls, also with the keyboard. */
function scrollable(label, table) {
  const properties = { className: "scroll", tabIndex: 0, role: "group", ariaLabel: label };
  return make("div", properties, table);
}

/** Return the content of a cell: an element or a text. */
function cellOf(column, row) {
  const start = row * column.rowSize;
  const values = column.data.slice(start, start + column.rowSize);
  const label = `${column.name}, row ${row}`;
  switch (column.kind) {
    case "image":
      return imageOf(values[0], label);
    case "pixels":
      return imageOfPixels(values, column.rowShape, label);
    case "probabilities":
      return column.rowCount > MAX_ROWS_OF_BARS ? mostLikelyClass(values) : barsOf(values);
    default:
      return textOf(values);
  }
}

/** Return the first values, separated by commas, and how many there are if some are left out. */
function textOf(values) {
  const texts = values.slice(0, MAX_VALUES).map((value) => shorten(String(value), MAX_TEXT));
  let text = texts.join(", ");
  if (values.length > MAX_VALUES) text += ` … ${values.length} in total`;

  // The capturing group keeps the spaces between the words.
  const words = text.split(/(\s+)/);
  return make("div", { className: "values" }, ...words.map(unbroken));
}

/** Prevent line breaks in words with punctuation, for example dates and negative exponents. */
function unbroken(word) {
  return /[-/?]/.test(word) ? make("span", {}, word) : word;
}

/** Return the probability and the index of the most likely class. */
function mostLikelyClass(values) {
  const index = values.indexOf(Math.max(...values));
  return `${percentOf(values[index])} ${index}`;
}

/** Return one bar per class in order, or the most likely classes first if there are many. */
function barsOf(values) {
  let classes = values.map((value, index) => ({ value, index }));
  const isLong = classes.length > MAX_CLASSES;
  if (isLong) {
    classes.sort((one, other) => other.value - one.value);
    classes = classes.slice(0, MOST_LIKELY_CLASSES);
  }

  const highest = Math.max(...values);
  const items = classes.map(({ value, index }) => barOf(value, index, value === highest));
  if (isLong) {
    const rest = values.length - MOST_LIKELY_CLASSES;
    items.push(make("li", { className: "note" }, `and ${rest} more`));
  }
  return make("ul", { className: "bars" }, ...items);
}

/** Return the bar of a class. `value` is its probability. */
function barOf(value, index, isHighest) {
  const bar = make("span", { className: "bar" });
  bar.style.setProperty("--share", value);
  return make(
    "li",
    { className: isHighest ? "best" : "", title: String(value) },
    make("span", { className: "class" }, String(index)),
    bar,
    make("span", {}, percentOf(value)),
  );
}

/** Return a probability as a percentage. Only 0 and 1 themselves are 0.0 % and 100.0 %. */
function percentOf(value) {
  if (value > 0 && value < 0.0005) return "< 0.1 %";
  if (value < 1 && value > 0.9995) return "> 99.9 %";
  return `${(value * 100).toFixed(1)} %`;
}

/** Return the text of the response, which opens with a click. */
function jsonOf(text) {
  const properties = { tabIndex: 0, ariaLabel: "Response as JSON" };
  const json = make("pre", properties, shorten(text, MAX_JSON));
  return make("details", {}, make("summary", {}, "JSON"), json);
}

/** Return at most `length` characters, and how many there are if some are left out. */
function shorten(text, length) {
  if (text.length <= length) return text;
  return `${text.slice(0, length)} … ${text.length} characters in total`;
}

/** Return a new element with these properties and children: elements or texts. */
function make(name, properties, ...children) {
  const element = document.createElement(name);
  Object.assign(element, properties);
  element.append(...children);
  return element;
}
