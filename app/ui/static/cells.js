// Conversion of pasted text to rows of cells, and of cells to JSON text.
//
// A cell is { text, isQuoted }: empty quotes are an empty text, and an empty cell without quotes is
// a missing value.
//
// A number never becomes a JavaScript number, which would round a large INT64. It keeps its digits
// and only gets the syntax of JSON:
//
//   +007 -> 7      .5 -> 0.5      -2. -> -2      1E9 -> 1E9

const NUMBER =
  /^(?<sign>[+-]?)(?=\.?\d)0*(?<digits>\d*)\.?(?<fraction>\d*)(?<exponent>e[+-]?\d+)?$/i;
const INFINITE = /^[+-]?inf(inity)?$/i;
const MISSING = /^(null|none|nan|na|n\/a)?$/i;
const BOOLEAN = /^(true|false)$/i;
const QUOTED = /^"[^"]*(?:""[^"]*)*"$/;
// A tab first, because the cells of a spreadsheet may contain the other two.
const DELIMITERS = ["\t", ";", ","];
const MAX_QUOTATION = 60;

/**
 * Split text into rows of cells, without blank rows.
 *
 * The delimiter is detected. Without one, numbers are separated by spaces, and each line of other
 * text is one cell.
 */
export function readRows(text, isNumeric) {
  const rows = splitRows(text, isNumeric);
  return rows.filter((row) => !isBlank(row));
}

/** Split text into rows of cells, including blank rows. */
function splitRows(text, isNumeric) {
  const delimiter = findDelimiter(text, isNumeric);
  if (delimiter) return splitAt(delimiter, text);
  if (isNumeric) return text.split("\n").map(splitAtSpaces);
  return splitAt(",", text);
}

/**
 * Return the first of DELIMITERS that occurs outside quotes, or undefined.
 *
 * In text, only the first line counts, because the prose of later ones may contain any of them.
 * Lines of numbers contain nothing else, so all count.
 */
function findDelimiter(text, isNumeric) {
  const unquoted = text.replace(/"[^"]*"/g, '""').replace(/^(\s*\n)+/, "");
  const sample = isNumeric ? unquoted : unquoted.split("\n", 1)[0];
  return DELIMITERS.find((delimiter) => sample.includes(delimiter));
}

function splitAtSpaces(line) {
  const words = line.trim().split(/\s+/);
  return words.map((text) => ({ text, isQuoted: false }));
}

/**
 * Split text into rows like a CSV reader: a cell in quotes may contain the delimiter, line breaks
 * and doubled quotes. Throw an Error if text follows the closing quote, or there is none.
 */
function splitAt(delimiter, text) {
  const cellPattern = `(?<content> *"[^"]*(?:""[^"]*)*" *|[^${delimiter}\n]*)`;
  const pattern = new RegExp(`${cellPattern}(?<end>${delimiter}|\n|$)`, "g");
  const rows = [[]];
  for (const match of text.matchAll(pattern)) {
    rows.at(-1).push(cellOf(match.groups.content.trim()));

    const { end } = match.groups;
    if (end === "\n") rows.push([]);
    if (end === "") break;
  }
  return rows;
}

/** Return the cell with this content, which may be in quotes. */
function cellOf(content) {
  if (!content.startsWith('"')) return { text: content, isQuoted: false };
  if (!QUOTED.test(content)) {
    const start = content.slice(0, MAX_QUOTATION);
    throw new Error(`A cell that begins with a quote must end with one: ${start}`);
  }
  return { text: content.slice(1, -1).replaceAll('""', '"'), isQuoted: true };
}

/** Return true for the row of an empty line. */
function isBlank(row) {
  const [cell] = row;
  return row.length === 1 && cell.text === "" && !cell.isQuoted;
}

/** Return true if the text is a number, a missing value or, for BOOL, a boolean. */
export function isValue(text, datatype) {
  const word = text.trim();
  if (datatype === "BOOL" && BOOLEAN.test(word)) return true;
  return MISSING.test(word) || NUMBER.test(word) || INFINITE.test(word);
}

/**
 * Return the text of a cell or field as the JSON text of an element of `input`.
 *
 * A missing value is null. For BYTES, this is an empty text, unless `isPresent` says that the user
 * has entered it. Throw an Error that names the input and the place of an invalid value.
 */
export function elementOf(text, input, { isPresent = false, place = "" } = {}) {
  const { name, datatype } = input;
  if (datatype === "BYTES") {
    const isMissing = text === "" && !isPresent;
    return isMissing ? "null" : JSON.stringify(text);
  }

  const word = text.trim();
  if (MISSING.test(word)) return "null";
  if (datatype === "BOOL" && BOOLEAN.test(word)) return word.toLowerCase();

  const subject = `${name}: ${JSON.stringify(word.slice(0, MAX_QUOTATION))}${place}`;
  if (!isValue(word, datatype)) {
    const problem = datatype === "BOOL" ? "neither true nor false" : "not a number";
    throw new Error(`${subject} is ${problem}.`);
  }
  if (!Number.isFinite(Number(word))) {
    throw new Error(`${subject} is infinite. JSON has no infinity.`);
  }
  return jsonNumber(word);
}

/** Return a number in the syntax of JSON: no plus sign, no leading zeros, digits at the point. */
function jsonNumber(word) {
  const { sign, digits, fraction, exponent } = word.match(NUMBER).groups;
  let number = sign === "-" ? "-" : "";
  number += digits || "0";
  if (fraction) number += `.${fraction}`;
  if (exponent) number += exponent;
  return number;
}

/** Return the bytes as base64 text. */
export function base64(bytes) {
  const characters = Array.from(bytes, (byte) => String.fromCharCode(byte));
  return btoa(characters.join(""));
}
