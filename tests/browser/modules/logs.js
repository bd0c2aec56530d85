import { Logs, describeLimits, describeProgress } from "../../../specrace/ui/static/logs/logs.js";
import { put } from "./fixtures.js";

const CHOICES = {
  tokenizers: ["tiny", "other"],
  lanes: ["trie", "suffix", "fusion"],
  engines: ["vllm-ngram"],
  chosen: ["trie", "fusion"],
  formats: ["one", "another"],
  advice: { gpus: ["h100"], sizes: [8], curves: [["assumed-gpu", "a GPU"]], batches: [1, 16] },
  limits: { bytes: 10, requests: 2000, seconds: 60, lanes: 2 },
};

// Calls `act` with the open dialog and the list of its requests, of which the first is for CHOICES; `answer` answers a
// log.
async function open(answer, act) {
  const originalFetch = window.fetch;
  const requests = [];
  window.fetch = async (url, { signal } = {}) => {
    requests.push(url);
    return url.includes("?") ? answer(signal) : Response.json(CHOICES);
  };
  const logs = new Logs(put(), { pause: () => {}, openRace: (file) => requests.push(file.name) });
  try {
    await logs.open();
    return await act(logs, requests);
  } finally {
    window.fetch = originalFetch;
    logs.node.close();
  }
}

// The answer that a log cannot be scored.
const refuse = (reason) => async () => new Response(`${JSON.stringify({ error: reason })}\n`);
// An answer that never comes.
const hang = (signal) => new Promise((_, fail) => signal.addEventListener("abort", () => fail(new Error("aborted"))));
const LOG = new File(["{}"], "a.csv");

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "limits in words": () => [
    describeLimits({ bytes: 2e7, requests: 2000, seconds: 60 }).split(". ")[0],
    "At most 20 MB, 2,000 requests and 60 seconds",
  ],
  "progress in words": () => [
    [describeProgress({ requests: 3, share: 0.5 }), describeProgress({ requests: 3, share: 0 })],
    ["3 requests, 50 % of the file", "3 requests"],
  ],
  "a choice stays when the dialog is opened again": () =>
    open(undefined, async (logs) => {
      const first = logs.choice();
      logs.tokenizer.value = "other";
      for (const lane of ["trie", "vllm-ngram"]) logs.lanes.querySelector(`[value=${lane}]`).click();
      await logs.open();
      return [
        [first, logs.choice()],
        [
          { tokenizer: "", lanes: "trie,fusion", columns: "" },
          { tokenizer: "other", lanes: "fusion,vllm-ngram", columns: "" },
        ],
      ];
    }),
  "no more lanes than fit": () =>
    open(undefined, (logs) => {
      logs.lanes.querySelector("[value=suffix]").click();
      return [
        [logs.choice().lanes, logs.statusLine.textContent],
        ["trie,fusion", "At most 2 lanes fit; untick one first."],
      ];
    }),
  "any file dropped on the dialog is sent": () =>
    open(refuse("a.csv is no log."), async (logs, requests) => {
      await logs.openFiles([LOG]);
      return [
        [
          requests.at(-1),
          logs.statusLine.textContent,
          logs.statusLine.dataset.kind,
          logs.stop.hidden,
          logs.again.hidden,
        ],
        ["gradio_api/logs?name=a.csv&tokenizer=&lanes=trie%2Cfusion&columns=", "a.csv is no log.", "bad", true, false],
      ];
    }),
  "advice is requested first, and again when the costs change": () =>
    open(refuse("too long."), async (logs, requests) => {
      await logs.openFiles([LOG]);
      logs.costs.batch.value = "16";
      logs.costs.batch.dispatchEvent(new Event("change"));
      const { inert } = logs.advice.node;
      while (logs.task) await new Promise((done) => setTimeout(done));
      const sent = requests.slice(1).map((url) => [url.split("?")[0], new URLSearchParams(url).get("batch")]);
      return [
        [sent, logs.advice.node.textContent, inert, logs.advice.node.inert],
        [
          [
            ["gradio_api/advice", "1"],
            ["gradio_api/logs", null],
            ["gradio_api/advice", "16"],
          ],
          "too long.",
          true,
          false,
        ],
      ];
    }),
  "other costs postpone the figures, and do not cancel them": () => {
    let calls = 0;
    const answer = (signal) => (calls++ ? refuse("too long.")() : hang(signal));
    return open(answer, async (logs, requests) => {
      logs.openFiles([LOG]);
      while (requests.length < 2) await new Promise((done) => setTimeout(done));
      logs.costs.batch.dispatchEvent(new Event("change"));
      while (logs.task) await new Promise((done) => setTimeout(done));
      return [
        requests.slice(1).map((url) => url.split("?")[0]),
        ["gradio_api/advice", "gradio_api/advice", "gradio_api/logs"],
      ];
    });
  },
  "another log's advice and figures are hidden while a log is scored": () => {
    let hidden;
    const answer = async () => {
      hidden ??= [logs.advice.node.hidden, logs.scores.node.hidden];
      return new Response('{"error":"too long."}\n');
    };
    let logs;
    return open(answer, async (opened) => {
      logs = opened;
      logs.advice.showRefusal("of another log");
      logs.scores.node.hidden = false;
      await logs.openFiles([LOG]);
      return [
        // The error is shown once, in the dialog's status line.
        [hidden, logs.advice.node.hidden, logs.statusLine.textContent],
        [[true, true], true, "too long."],
      ];
    });
  },
  "a recorded race is not a log": () =>
    open(undefined, async (logs, requests) => {
      await logs.openFiles([new File(['{"type":"started"}'], "race.jsonl")]);
      return [
        [requests.at(-1), logs.node.open],
        ["race.jsonl", false],
      ];
    }),
  "a folder, which cannot be read, is refused in a sentence": () =>
    open(undefined, async (logs, requests) => {
      const folder = { name: "logs", slice: () => ({ text: () => Promise.reject(new DOMException("a folder")) }) };
      await logs.openFiles([folder]);
      return [
        [requests.length, logs.statusLine.textContent, logs.statusLine.dataset.kind],
        [1, "logs cannot be read; give files.", "bad"],
      ];
    }),
  "a log that is too large is not sent": () =>
    open(undefined, async (logs, requests) => {
      await logs.openFiles([new File(["x".repeat(11)], "a.jsonl")]);
      return [
        [requests.length, logs.statusLine.textContent.includes("more than 0.00001 MB"), logs.again.hidden],
        [1, true, true],
      ];
    }),
  "after a stop only the stop is reported": () => {
    return open(hang, async (logs) => {
      const opened = logs.openFiles([LOG]);
      while (logs.stop.hidden) await new Promise((done) => setTimeout(done));
      logs.stop.click();
      await opened;
      return [
        [logs.statusLine.textContent, logs.statusLine.dataset.kind, logs.stop.hidden],
        ["Stopped.", "", true],
      ];
    });
  },
  "the dialog has a live region only while it is open": () =>
    open(undefined, async (logs) => {
      const openRole = logs.statusLine.getAttribute("role");
      logs.node.close();
      await new Promise((done) => logs.node.addEventListener("close", done, { once: true }));
      return [
        [openRole, logs.statusLine.getAttribute("role")],
        ["status", null],
      ];
    }),
};
