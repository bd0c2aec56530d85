// A list's results as files: CSV, a report in one HTML file, and the settings of the fastest lane.
/** @import { KeptList } from "./question_store.js" */
/** @import { LaneFigures, QuestionRow } from "./question_figures.js" */
import { make } from "../lib/dom.js";
import { toCsv } from "../lib/csv.js";
import { findFastestLane, spreadOf, summarise } from "./question_figures.js";
import { describeTotal, drawTable, LEGEND } from "./question_table.js";

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
const POLICY = "default-src 'none'; style-src 'unsafe-inline'";
// Without ">", which the serialised file would escape.
const STYLE = `
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 80rem; margin: 0 auto; padding: 1rem; font-variant-numeric: tabular-nums }
h1 { line-height: 1.2 }
div { overflow-x: auto }
table { border-collapse: collapse }
th, td { padding: .4rem 1rem .4rem 0; text-align: start; vertical-align: top; border-bottom: 1px solid GrayText; white-space: nowrap }
th[scope="row"] { min-width: 14rem; white-space: normal; font-weight: 400; overflow-wrap: anywhere }
tfoot th, tfoot td { border-top: 2px solid; border-bottom: 0 }
small { display: block; font-size: .85rem }
th small:first-child { float: inline-start; min-width: 2rem }
i { margin-inline-start: .5rem; font-size: .85rem; font-style: normal }
p { max-width: 70rem; overflow-wrap: anywhere }
`;
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

/**
 * The settings file of the lane with the highest median speedup, as `recommend` writes it and `--settings` reads it;
 * undefined if no lane is faster than vanilla. With draft tokens on auto, the median of what was chosen.
 * @param {(QuestionRow | undefined)[]} rows
 */
export function fastestSettings(rows) {
  const best = findFastestLane(summarise(rows));
  if (!best) return undefined;
  const sizes = rows.flatMap((row) => row?.lanes?.find(({ lane }) => lane === best.lane)?.num_draft ?? []);
  const [method, ...pairs] = best.lane.split(":");
  const options = Object.fromEntries(pairs.map((pair) => [pair.split("=")[0], readValue(pair.split("=")[1])]));
  const settings = { method, num_draft: Math.round(spreadOf(sizes).median), options };
  return `${JSON.stringify(settings, null, 1)}\n`;
}

// An option's value in a lane's name.
function readValue(text) {
  if (text === "true" || text === "false") return text === "true";
  return text.trim() && Number.isFinite(Number(text)) ? Number(text) : text;
}

/**
 * One HTML file that runs and loads nothing.
 * @param {KeptList} list
 * @param {(QuestionRow | undefined)[]} rows
 */
export function makeReport(list, rows) {
  const page = document.implementation.createHTMLDocument("specrace: questions");
  page.documentElement.lang = "en";
  const charset = Object.assign(make("meta"), { httpEquiv: "Content-Type", content: "text/html; charset=utf-8" });
  const policy = Object.assign(make("meta"), { httpEquiv: "Content-Security-Policy", content: POLICY });
  const phone = Object.assign(make("meta"), { name: "viewport", content: "width=device-width" });
  page.head.prepend(charset, policy, phone);
  page.head.append(make("style", "", STYLE));
  const box = make("div");
  box.append(drawTable(list.questions, rows, undefined, undefined));
  const facts = describeFacts(list, rows).map((sentence) => make("p", "", sentence));
  page.body.append(make("h1", "", describeTotal(rows) || "No question counts"), ...facts, box, make("p", "", LEGEND));
  return `<!doctype html>\n${new XMLSerializer().serializeToString(page.documentElement)}\n`;
}

/**
 * Sentences on what was raced, on what and when.
 * @param {KeptList} list
 * @param {(QuestionRow | undefined)[]} rows
 */
export function describeFacts({ questions, documents }, rows) {
  const raced = rows.filter((row) => row?.lanes);
  const first = raced[0];
  const names = (documents ?? [])
    .map((name) => name.split("/").at(-1))
    .toSorted()
    .join(", ");
  const days = raced.flatMap(({ date }) => (date ? [date.slice(0, 10)] : [])).toSorted();
  const period = days[0] === days.at(-1) ? days.slice(0, 1) : [days[0], days.at(-1)];
  const facts = [
    `${raced.length} of ${questions.length} questions raced on ${names ? `the documents ${names}` : "the server's documents"}${days.length ? `, ${period.join(" to ")}` : ""}.`,
  ];
  if (first) facts.push(`${first.setup}. Settings: ${first.settings}.`);
  return facts;
}
