// The results of races as CSV: a line for each question and lane.
/** @import { LaneFigures, QuestionRow } from "./question_figures.js" */
import { toCsv } from "../lib/csv.js";

const COLUMNS = [
  "number",
  "question",
  "lane",
  "counts",
  "speedup",
  "tokens_per_step",
  "tokens_per_s",
  "identical",
  "compared",
  "first_token_ms",
  "tokens",
  "steps",
  "drafted",
  "accepted",
  "repeats_itself",
  "max_draft_tokens",
  "setup",
  "date",
];
const YES_NO = { true: "yes", false: "no", null: "not compared" };

/**
 * @param {QuestionRow} row
 * @param {LaneFigures} figures
 */
function listFigures(row, figures) {
  // What a server did not report is left empty.
  const known = (value, isKnown = Boolean(value)) => (figures.measured && !isKnown ? "" : value);
  return [
    figures.lane,
    row.disturbed ? "no: disturbed" : "yes",
    figures.measured ? "" : figures.speedup,
    known(figures.tau),
    known(figures.tokens_per_s),
    YES_NO[String(figures.identical)],
    figures.compared,
    figures.first_token_ms,
    known(figures.tokens),
    known(figures.steps),
    known(figures.drafted),
    known(figures.accepted, Boolean(figures.drafted || figures.accepted)),
    figures.has_tokens ? YES_NO[String(figures.loops)] : "",
    figures.num_draft,
    row.setup,
    row.date ?? "",
  ];
}

/**
 * A line for each question and lane; a question without figures has one line, which says why.
 * @param {string[]} questions
 * @param {(QuestionRow | undefined)[]} rows
 */
export function listCsv(questions, rows) {
  const lines = questions.flatMap((question, index) => {
    const row = rows[index];
    const head = [index + 1, question];
    if (row?.lanes) return row.lanes.map((figures) => [...head, ...listFigures(row, figures)]);
    const line = [...head, "", row?.error ? `no: ${row.error}` : "no: not raced"];
    return [[...line, ...COLUMNS.slice(line.length).map(() => "")]];
  });
  return toCsv([COLUMNS, ...lines]);
}
