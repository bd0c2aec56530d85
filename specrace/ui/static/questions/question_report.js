// A list's results as files: a report in one HTML file, and the settings of the fastest lane.
/** @import { KeptList } from "./question_store.js" */
/** @import { QuestionRow } from "./question_figures.js" */
import { make } from "../lib/dom.js";
import { findFastestLane, spreadOf, summarise } from "./question_figures.js";
import { describeTotal, drawTable, LEGEND } from "./question_table.js";

const POLICY = "default-src 'none'; style-src 'unsafe-inline'";
// The style of the report, without ">", which the serialised file would escape.
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

/**
 * The settings file of the lane with the highest median speedup, as `recommend` writes it and `--settings` reads it;
 * undefined if no lane is faster than vanilla. With draft tokens on auto, `num_draft` is the median of the chosen
 * numbers.
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
