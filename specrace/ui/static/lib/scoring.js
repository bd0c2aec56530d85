// Recognises logs, joins several into one, sends a log to the server, and reads the answer as it arrives.
/** @import { LogAdvice, LogChoices, LogLine, LogProgress, ScoredLog } from "./wire.d.ts" */
import { ROUTES } from "./constants.js";
import { writeZip } from "./zip.js";

// JSON lines, perhaps compressed, and tables.
const LOG_NAME = /\.(jsonl|ndjson)(\.(gz|zst|xz|bz2))?$|\.(parquet|arrow)$/i;
// Names of files that may hold JSON lines, but lack the ending by which the server recognises such files.
const UNTYPED_NAME = /\.(txt|log)$|^[^.]*$/i;
// Enough for a recording's first line, which contains the passages.
const HEAD_BYTES = 262_144;
const STARTED_EVENT = /"type"\s*:\s*"started"/;
// The label of the field that takes what --columns takes on the command line.
export const COLUMNS = "Columns of a table";
const NO_ANSWER = "The server does not answer; reload the page.";

// Whether a file that was dropped anywhere on the page is a log and not a document.
export function isLog({ name }) {
  return LOG_NAME.test(name);
}

export async function isRecordedRace(file) {
  const head = await file.slice(0, HEAD_BYTES).text();
  return STARTED_EVENT.test(head.split("\n", 1)[0]);
}

/**
 * Joins several logs, for instance the requests and the responses of a batch.
 * @param {Iterable<File>} files
 * @param {number} maxBytes
 * @returns {Promise<{name?: string, body?: Blob, error?: string}>} the log, or an error as a sentence
 */
export async function joinLogs(files, maxBytes) {
  const list = [...files];
  const name = list.map((file) => file.name).join(" and ");
  const size = list.reduce((sum, file) => sum + file.size, 0);
  const tooLarge = {
    error: `${name}: more than ${maxBytes / 1e6} MB. On the command line, python -m specrace score takes logs of any size.`,
  };
  if (size > maxBytes) return tooLarge;
  if (list.length === 1) return { name, body: list[0] };
  // Files from several folders may have the same name; the server reads them in the order of their names.
  const named = list.map((file, index) => ({
    name: `${String(index + 1).padStart(4, "0")}/${memberName(file.name)}`,
    file,
  }));
  const body = await writeZip(named).catch(() => undefined);
  if (!body) return { error: `${name} cannot be read; give files.` };
  return body.size > maxBytes ? tooLarge : { name, body };
}

// A file's name in the zip, with an ending that the server recognises.
function memberName(name) {
  return UNTYPED_NAME.test(name) ? `${name}.jsonl` : name;
}

/**
 * Fetches the tokenizers, lanes and limits on offer. Throws an Error whose message is a sentence to show.
 * @returns {Promise<LogChoices>}
 */
export async function fetchChoices() {
  const answer = await fetch(ROUTES.logs).catch(() => undefined);
  if (!answer?.ok) throw new Error((await readRefusal(answer)) || NO_ANSWER);
  return answer.json();
}

// The sentence of a refusal. Our server sends plain text; a proxy may send an HTML page, which is not shown.
async function readRefusal(answer) {
  return answer?.headers.get("content-type")?.startsWith("text/plain") ? answer.text() : "";
}

/**
 * Gets the scores of a log, {name, body}, and calls `onProgress` meanwhile. `choice` has the tokenizer, lanes and
 * columns as query parameters. Throws an Error whose message is a sentence to show or, if `signal` aborts the request,
 * the signal's reason.
 * @param {(progress: LogProgress) => void} onProgress
 * @param {AbortSignal} signal
 * @returns {Promise<ScoredLog>}
 */
export function scoreLog(log, choice, onProgress, signal) {
  return postLog(ROUTES.logs, log, choice, onProgress, signal).then(({ scores }) => scores);
}

/**
 * Gets the recommendation for a log, with the parameters and errors of `scoreLog`.
 * @param {(progress: LogProgress) => void} onProgress
 * @param {AbortSignal} signal
 * @returns {Promise<LogAdvice>}
 */
export function adviseLog(log, choice, onProgress, signal) {
  return postLog(ROUTES.advice, log, choice, onProgress, signal).then(({ advice }) => advice);
}

async function postLog(url, { name, body }, choice, onProgress, signal) {
  // The end of the name, because the server recognises some formats by the ending.
  const query = new URLSearchParams({ name: name.slice(-200), ...choice });
  /** @type {LogLine} */
  let last;
  try {
    const answer = await fetch(`${url}?${query}`, { method: "POST", body, signal });
    if (answer.ok)
      for await (const line of readLines(answer.body)) {
        last = line;
        if (line.progress) onProgress(line.progress);
      }
    last ??= { error: await readRefusal(answer) };
  } catch (error) {
    throw signal.aborted ? signal.reason : new Error(NO_ANSWER, { cause: error });
  }
  if (last.scores || last.advice) return last;
  throw new Error(last.error || NO_ANSWER);
}

/**
 * Parses lines of JSON as they arrive.
 * @returns {AsyncGenerator<LogLine>}
 */
export async function* readLines(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let incomplete = "";
  for (;;) {
    const { value, done } = await reader.read();
    const lines = (incomplete + (value ?? "")).split("\n");
    incomplete = lines.pop();
    for (const line of lines) yield JSON.parse(line);
    if (done) return;
  }
}

/**
 * Rewrites a server's error for the page, which has a field in place of the command line's flag --columns.
 * @param {string} sentence
 * @returns {{ sentence: string, columns: string }} `columns`: what to write into the field, if the sentence proposes it
 */
export function explainColumns(sentence) {
  // The fields in a proposal such as "--columns prompt=question,output=answer.text.", without the final full stop.
  const proposed = /--columns (prompt=[^,;\s]+,output=[^,;\s.]+(?:\.[^,;\s.]+)*)/.exec(sentence)?.[1] ?? "";
  return {
    sentence: sentence.replace(/by --columns (?=\w+=)/g, `in “${COLUMNS}”: `).replaceAll("--columns", `“${COLUMNS}”`),
    // FIELD stands for a name that the visitor has to choose.
    columns: /\bFIELD\b/.test(proposed) ? "" : proposed,
  };
}
