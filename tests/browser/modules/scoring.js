import {
  adviseLog,
  explainColumns,
  fetchChoices,
  isLog,
  isRecordedRace,
  joinLogs,
  readLines,
  scoreLog,
} from "../../../specrace/ui/static/lib/scoring.js";

const file = (name, ...parts) => new File(parts, name);
const stream = (...parts) => new Blob(parts).stream();
const LOG = { name: "a.jsonl", body: new Blob(["{}"]) };

async function collect(lines) {
  const list = [];
  for await (const line of lines) list.push(line);
  return list;
}

// The error of `fetchChoices` for this answer of the server.
async function refuse(answer) {
  const originalFetch = window.fetch;
  window.fetch = answer;
  try {
    return await fetchChoices();
  } catch (error) {
    return error.message;
  } finally {
    window.fetch = originalFetch;
  }
}

// The URL that `scoreLog` requests, its progress and its result or error, for this answer of the server.
async function ask(answer, signal = new AbortController().signal, send = scoreLog) {
  const originalFetch = window.fetch;
  const results = [];
  window.fetch = async (url) => {
    results.push(url);
    return answer();
  };
  try {
    results.push(await send(LOG, { lanes: "trie" }, (progress) => results.push(progress), signal));
  } catch (error) {
    results.push(error.message);
  } finally {
    window.fetch = originalFetch;
  }
  return results;
}

const URL_ASKED = "gradio_api/logs?name=a.jsonl&lanes=trie";

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "logs are recognised by their names": () => [
    ["a.jsonl", "a.JSONL.gz", "a.jsonl.zst", "a.ndjson", "a.parquet", "a.csv", "a.json", "a.md"].filter((name) =>
      isLog({ name }),
    ),
    ["a.jsonl", "a.JSONL.gz", "a.jsonl.zst", "a.ndjson", "a.parquet"],
  ],
  "a recorded race is recognised by its first line": async () => [
    await Promise.all(
      [
        '{"type": "started", "format": 1}\n{}',
        '{"about": {}, "type":"started"}',
        '{"type": "session_meta"}\n{"type": "started"}',
        '{"output": "\\"type\\": \\"started\\""}',
        "",
      ].map((text) => isRecordedRace(file("a.jsonl", text))),
    ),
    [true, true, false, false, false],
  ],
  "several logs are joined as a zip": async () => {
    const { name, body } = await joinLogs([file("a.jsonl", "1"), file("b", "2\n")], 1000);
    const text = await body.text();
    return [
      [name, text.slice(0, 2), text.includes("1/a.jsonl1"), text.includes("2/b.jsonl2\n")],
      ["a.jsonl and b", "PK", true, true],
    ];
  },
  "one log stays as it is": async () => {
    const one = file("a.parquet", "1");
    return [(await joinLogs([one], 10)).body === one, true];
  },
  "nothing too large is sent": async () => [
    [
      (await joinLogs([file("a.jsonl", "x".repeat(11))], 10)).error.slice(0, 34),
      (await joinLogs([file("a.jsonl", "x"), file("b.jsonl", "y")], 10)).error.slice(0, 27),
    ],
    ["a.jsonl: more than 0.00001 MB. On ", "a.jsonl and b.jsonl: more t"],
  ],
  "a line that arrives in parts is read as one": async () => [
    await collect(readLines(stream('{"a"', ':1}\n{"b":2}\n{"c"', ':"é"}\n'))),
    [{ a: 1 }, { b: 2 }, { c: "é" }],
  ],
  "progress, and then the scores": async () => [
    await ask(() => new Response('{"progress":{"requests":1}}\n{"scores":{"outputs":2}}\n')),
    [URL_ASKED, { requests: 1 }, { outputs: 2 }],
  ],
  "the recommendation for a log": async () => [
    await ask(() => new Response('{"advice":{"requests":2}}\n'), undefined, adviseLog),
    [URL_ASKED.replace("logs", "advice"), { requests: 2 }],
  ],
  "a log that cannot be scored": async () => [
    await ask(() => new Response('{"error":"a.jsonl is no log."}\n')),
    [URL_ASKED, "a.jsonl is no log."],
  ],
  "a request that is refused": async () => [
    await ask(() => new Response("0 lanes were chosen.", { status: 400 })),
    [URL_ASKED, "0 lanes were chosen."],
  ],
  "a server that refuses logs gives the reason": async () => {
    const answer = (type, words) => async () => new Response(words, { status: 403, headers: { "Content-Type": type } });
    const gone = "The server does not answer; reload the page.";
    return [
      [
        await refuse(answer("text/plain; charset=utf-8", "This server takes no files.")),
        await refuse(answer("text/html", "<h1>Bad Gateway</h1>")),
        await refuse(answer("text/plain", "")),
        await refuse(() => Promise.reject(new Error("gone"))),
      ],
      ["This server takes no files.", gone, gone, gone],
    ];
  },
  "an answer that breaks off": async () => [
    await ask(() => new Response('{"progress":{"requests":1}}\n{"sco')),
    [URL_ASKED, { requests: 1 }, "The server does not answer; reload the page."],
  ],
  "a request that is stopped": async () => [
    await ask(() => Promise.reject(new Error("aborted")), AbortSignal.abort(new Error("Stopped."))),
    [URL_ASKED, "Stopped."],
  ],
  "an error about --columns names the page's field, and what to write into it": () => {
    const proposal =
      "this line is of no known format: it has text in question, answer; name its fields by --columns prompt=question,output=answer (3 lines).";
    const { sentence, columns } = explainColumns(proposal);
    return [
      [
        sentence,
        columns,
        explainColumns("name its fields by --columns prompt=FIELD,output=answer").columns,
        explainColumns("--columns has 'x'; give NAME=COLUMN.").sentence,
      ],
      [
        "this line is of no known format: it has text in question, answer; name its fields in “Columns of a table”: prompt=question,output=answer (3 lines).",
        "prompt=question,output=answer",
        "",
        "“Columns of a table” has 'x'; give NAME=COLUMN.",
      ],
    ];
  },
};
