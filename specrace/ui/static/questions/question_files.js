// Reads a list of questions: typed text, one question a line, or a file (.txt, .csv, .tsv, .jsonl).
import { CONSTANTS } from "../lib/constants.js";

// The limits of a list are guesses at what a visitor may want. A race takes seconds, and the browser keeps all of them.
export const MAX_QUESTIONS = 100;
const MAX_CHARACTERS = CONSTANTS.max_question_characters;
const MAX_FILE_BYTES = 1_000_000;
// The names that the column, or an object's field, with the question may have.
const NAMES = ["question", "prompt"];

// The questions of a text, one a line, without blanks around them; empty lines are left out.
export function readLines(text) {
  return text
    .split(/\r?\n/)
    .map((line) => line.trim())
    .filter(Boolean);
}

// The rows of a table, each a list of cells. A cell in quotes may hold separators, line breaks and doubled quotes.
export function readTable(text, separator) {
  const rows = [];
  // Groups: the content of a cell in quotes, that of one without quotes, and what ends the cell.
  const cell = new RegExp(`(?:"((?:[^"]|"")*)"|(?!")([^${separator}\\r\\n]*))(${separator}|\\r?\\n|$)`, "y");
  let row = [];
  while (cell.lastIndex < text.length) {
    const match = cell.exec(text);
    if (!match) throw new Error(`row ${rows.length + 1} has a quote that is not closed`);
    row.push(match[1] === undefined ? match[2] : match[1].replaceAll('""', '"'));
    if (match[3] !== separator) {
      rows.push(row);
      row = [];
    }
  }
  // After a separator at the end of the text, one more cell is empty.
  if (row.length) rows.push([...row, ""]);
  return rows.filter((cells) => cells.some((value) => value.trim()));
}

function readColumn(text, separator) {
  const [head = [], ...rows] = readTable(text, separator);
  const names = head.map((name) => name.trim().toLowerCase());
  const column = names.findIndex((name) => NAMES.includes(name));
  if (column >= 0) return rows.map((row) => (row[column] ?? "").trim()).filter(Boolean);
  if (head.length > 1) throw new Error(`its columns are ${head.join(", ")}; name one of them question`);
  return [head, ...rows].map((row) => row[0].trim());
}

function readObjects(text) {
  return text.split(/\r?\n/).flatMap((line, index) => {
    if (!line.trim()) return [];
    let value;
    try {
      value = JSON.parse(line);
    } catch {
      throw new Error(`line ${index + 1} is not JSON`);
    }
    const question = typeof value === "string" ? value : NAMES.map((name) => value?.[name]).find(Boolean);
    if (typeof question !== "string") throw new Error(`line ${index + 1} has no question; write {"question": "..."}`);
    return [question.trim()];
  });
}

/**
 * The questions of a file. Throws an Error whose message is a sentence to show.
 * @param {File} file
 */
export async function readQuestionFile(file) {
  if (file.size > MAX_FILE_BYTES)
    throw new Error(`${file.name} is larger than ${MAX_FILE_BYTES / 1e6} MB; give a shorter list.`);
  const text = (await file.text()).replace(/^\uFEFF/, "");
  try {
    if (/\.(jsonl|ndjson)$/i.test(file.name)) return readObjects(text);
    if (/\.csv$/i.test(file.name)) return readColumn(text, ",");
    if (/\.tsv$/i.test(file.name)) return readColumn(text, "\t");
    if (/\.txt$/i.test(file.name)) return readLines(text);
    throw new Error("it is no list of questions; give .txt, .csv, .tsv or .jsonl");
  } catch (error) {
    throw new Error(`${file.name}: ${error.message}.`, { cause: error });
  }
}

// The questions without repetitions, and without line breaks inside them, which would make two of one.
/** @param {string[]} questions */
export function tidyQuestions(questions) {
  return [...new Set(questions.map((question) => question.replace(/\s+/g, " ").trim()).filter(Boolean))];
}

// What is wrong with a list of questions, as a sentence; "" if nothing is.
/** @param {string[]} questions */
export function findProblem(questions) {
  if (!questions.length) return "Type a question on each line, drop a list, or draw questions from the documents.";
  if (questions.length > MAX_QUESTIONS)
    return `${questions.length} questions are too many for this page; race at most ${MAX_QUESTIONS}.`;
  const long = questions.findIndex((question) => question.length > MAX_CHARACTERS);
  return long < 0
    ? ""
    : `Question ${long + 1} has ${questions[long].length} characters; ask one of at most ${MAX_CHARACTERS}.`;
}
