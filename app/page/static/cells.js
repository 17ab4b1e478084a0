// Pasted text as rows of cells, and a cell as the text that JSON has for it.

const NUMBER = /^([+-]?)(?=\.?\d)0*(\d*)\.?(\d*)(e[+-]?\d+)?$/i;
const INFINITE = /^[+-]?inf(inity)?$/i;
const MISSING = /^(null|none|nan|na|n\/a)?$/i;
const BOOLEAN = /^(true|false)$/i;
const QUOTED = /^"[^"]*(?:""[^"]*)*"$/;

/** Lines of cells, [text, whether it was in quotes], without blank ones; what separates them is found out. */
export function readRows(text, isNumeric) {
  const bare = text.replace(/"[^"]*"/g, '""').replace(/^(\s*\n)+/, "");
  const mark = ["\t", ";", ","].find((each) => (isNumeric ? bare : bare.split("\n", 1)[0]).includes(each));
  const rows = !mark && isNumeric ? text.split("\n").map(byBlanks) : byMark(text, mark ?? ",");
  return rows.filter(([[cell, quoted], ...more]) => cell !== "" || quoted || more.length);
}

function byBlanks(line) {
  return line.trim().split(/\s+/).map((cell) => [cell, false]);
}

function byMark(text, mark) {
  const pattern = new RegExp(`( *"[^"]*(?:""[^"]*)*" *|[^${mark}\n]*)(${mark}|\n|$)`, "g");
  const rows = [[]];
  for (const [, written, end] of text.matchAll(pattern)) {
    const cell = written.trim();
    const quoted = QUOTED.test(cell);
    if (cell.startsWith('"') && !quoted) {
      throw new Error(`A cell that begins with a quote must end with one: ${cell.slice(0, 60)}`);
    }
    rows.at(-1).push([quoted ? cell.slice(1, -1).replaceAll('""', '"') : cell, quoted]);
    if (end === "\n") rows.push([]);
    if (end === "") break;
  }
  return rows;
}

/** Whether a cell can be an element that is no text. */
export function isValue(text, datatype) {
  const patterns = [MISSING, NUMBER, INFINITE, ...(datatype === "BOOL" ? [BOOLEAN] : [])];
  return patterns.some((each) => each.test(text.trim()));
}

/** A cell as JSON has it; an empty one is missing, unless it is text and `present`. `place` says where it is. */
export function element(text, { name, datatype }, present = false, place = "") {
  if (datatype === "BYTES") return text === "" && !present ? "null" : JSON.stringify(text);
  const word = text.trim();
  if (MISSING.test(word)) return "null";
  if (datatype === "BOOL" && BOOLEAN.test(word)) return word.toLowerCase();
  const told = `${name}: ${JSON.stringify(word.slice(0, 60))}${place}`;
  if (!isValue(word, datatype)) {
    throw new Error(`${told} is ${datatype === "BOOL" ? "neither true nor false" : "no number"}.`);
  }
  if (!Number.isFinite(Number(word))) throw new Error(`${told} is infinite, and JSON has no infinity.`);
  return number(word);
}

/** A number as JSON spells it, digit by digit, without a plus, zeros before it, or a point that has nothing on a side. */
function number(word) {
  const [, sign, whole, fraction, exponent = ""] = word.match(NUMBER);
  return (sign === "-" ? "-" : "") + (whole || "0") + (fraction && `.${fraction}`) + exponent;
}
