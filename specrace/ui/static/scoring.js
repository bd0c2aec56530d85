// A log on its way: which files are logs, how several become one, and the server's answer as it comes.
const URL_OF_LOGS = "gradio_api/logs";
const URL_OF_ADVICE = "gradio_api/advice";
const NAME = /\.(jsonl|ndjson)(\.gz)?$|\.parquet$/i;
const LINES = /\.(jsonl|ndjson|json|txt|log)$/i;
// A recording's first line has the documents, too.
const HEAD_BYTES = 262_144;
const RECORDED = /"type"\s*:\s*"started"/;
const GONE = "The server does not answer; reload the page.";

// Whether a file that is dropped anywhere on the page is a log, and no document.
export function isLog({ name }) {
  return NAME.test(name);
}

export async function isRecordedRace(file) {
  const head = await file.slice(0, HEAD_BYTES).text();
  return RECORDED.test(head.split("\n", 1)[0]);
}

// Several logs as one, for instance the requests and the responses of a batch: {name, body}, or {error} in words.
export function joinLogs(files, most) {
  const list = [...files];
  const name = list.map((file) => file.name).join(" and ");
  const size = list.reduce((sum, file) => sum + file.size, 0);
  if (size > most)
    return {
      error: `${name}: more than ${most / 1e6} MB. On the command line, python -m specrace score takes logs of any size.`,
    };
  if (list.length === 1) return { name, body: list[0] };
  const other = list.find((file) => !LINES.test(file.name));
  if (other) return { error: `${other.name} is no file of lines that others can be added to; drop it alone.` };
  return { name, body: new Blob(list.flatMap((file) => [file, "\n"])) };
}

// The tokenizers, the lanes and the limits.
export async function askChoices() {
  const answer = await fetch(URL_OF_LOGS).catch(() => undefined);
  if (!answer?.ok) throw new Error((await readRefusal(answer)) || GONE);
  return answer.json();
}

// Our own server refuses in plain text; what stands before it may send a page, which nobody can read here.
async function readRefusal(answer) {
  return answer?.headers.get("content-type")?.startsWith("text/plain") ? answer.text() : "";
}

// The scores of a log; `tell` gets the progress on the way. Throws an Error with a sentence; one that `signal` stops
// throws its reason.
export function scoreLog(log, choice, tell, signal) {
  return send(URL_OF_LOGS, log, choice, tell, signal).then(({ scores }) => scores);
}

// What a log recommends, in the same way.
export function adviseLog(log, choice, tell, signal) {
  return send(URL_OF_ADVICE, log, choice, tell, signal).then(({ advice }) => advice);
}

async function send(url, { name, body }, choice, tell, signal) {
  const query = new URLSearchParams({ name: name.slice(-200), ...choice });
  let last;
  try {
    const answer = await fetch(`${url}?${query}`, { method: "POST", body, signal });
    if (answer.ok) for await (const part of readLines(answer.body)) if ((last = part).progress) tell(part.progress);
    last ??= { error: await readRefusal(answer) };
  } catch (error) {
    throw signal.aborted ? signal.reason : new Error(GONE, { cause: error });
  }
  if (last.scores || last.advice) return last;
  throw new Error(last.error || GONE);
}

// Lines of JSON, as they come.
export async function* readLines(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    const lines = (rest + (value ?? "")).split("\n");
    rest = lines.pop();
    for (const line of lines) yield JSON.parse(line);
    if (done) return;
  }
}
