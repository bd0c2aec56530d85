import { describeDocuments, nameDocuments, QuestionList } from "../../../specrace/ui/static/questions/question_list.js";
import { QuestionStore } from "../../../specrace/ui/static/questions/question_store.js";
import { listedReel } from "./fixtures.js";

const FILES = [{ path: "/tmp/1/abc/notes.md" }];
// The values of the page's fields after the question and the documents.
const SETTINGS = ["", "", [], ["vanilla", "trie"], 8];

// A list whose server answers a race with `answer(question, list)`, a message, and whose race ends as `end(question)`.
// `asked` collects the values that the server got, `said` the list's messages.
function makeList({
  answer = () => ({ phase: "waiting", key: "k" }),
  end = () => ({ reel: listedReel() }),
  files = FILES,
  settings = SETTINGS,
}) {
  const asked = [];
  const said = [];
  const channel = {
    answers: async () => true,
    press: (fill) => {
      const values = fill(["what the field says", files, ...settings]);
      asked.push(values);
      list.receive(answer(values[0], list));
    },
    collect: async (_key, onNote) => {
      onNote("You're next.");
      return end(asked.at(-1)[0], list);
    },
  };
  const list = new QuestionList(new QuestionStore(undefined), channel, () => said.push(list.message));
  return { list, asked, said, channel };
}

// For each question of a list "raced", "due" (Resume races it), or why it could not be raced.
const states = (list) => list.rows.map((row) => row?.error ?? (row?.lanes ? "raced" : "due"));

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "questions are raced one after the other, with the list's own settings": async () => {
    const { list, asked, said } = makeList({});
    await list.begin(["Why?", "How?"]);
    return [
      [asked, states(list), list.due, list.bad, said],
      [
        [
          ["Why?", FILES, ...SETTINGS],
          ["How?", FILES, ...SETTINGS],
        ],
        ["raced", "raced"],
        [],
        false,
        [
          "",
          "Asking the server …",
          "Question 1 of 2: racing …",
          "Question 1 of 2: You're next.",
          "Question 2 of 2: racing …",
          "Question 2 of 2: You're next.",
          "All questions are raced.",
        ],
      ],
    ];
  },
  "a stopped list goes on where it stopped": async () => {
    const { list, asked } = makeList({
      end: (question, raced) => {
        // The visitor stops the list during its second race.
        if (question === "How?" && asked.length === 2) raced.stop();
        if (asked.length === 2) throw new Error("aborted");
        return { reel: listedReel() };
      },
    });
    await list.begin(["Why?", "How?", "Who?"]);
    const stopped = [states(list), list.message.slice(0, 8)];
    await list.run();
    return [
      [stopped, states(list), asked.map(([question]) => question)],
      [
        [["raced", "due", "due"], "Stopped."],
        ["raced", "raced", "raced"],
        ["Why?", "How?", "How?", "Who?"],
      ],
    ];
  },
  "a question that fails is left, and two in a row pause the list": async () => {
    const once = makeList({
      end: (question) => (question === "How?" ? { error: "Too long." } : { reel: listedReel() }),
    });
    await once.list.begin(["Why?", "How?", "Who?"]);
    const always = makeList({ end: () => ({ error: "No model." }) });
    await always.list.begin(["Why?", "How?", "Who?"]);
    return [
      [states(once.list), once.list.message, states(always.list), always.list.message, always.list.bad],
      [
        ["raced", "Too long.", "raced"],
        "2 of 3 questions are raced; Resume tries the others again.",
        ["No model.", "No model.", "due"],
        "No model.",
        true,
      ],
    ];
  },
  "a reached limit delays the list": async () => {
    const originalTimeout = window.setTimeout;
    window.setTimeout = (act) => originalTimeout(act, 0);
    const { list, asked, said } = makeList({
      answer: () => (asked.length < 3 ? { phase: "busy", message: "Wait." } : { phase: "waiting", key: "k" }),
    });
    await list.begin(["Why?"]);
    window.setTimeout = originalTimeout;
    return [
      [asked.length, states(list), said.includes("Wait. The list goes on by itself.")],
      [3, ["raced"], true],
    ];
  },
  "a refusal pauses the list": async () => {
    const { list } = makeList({ answer: () => ({ phase: "refused", message: "Broken settings." }) });
    await list.begin(["Why?"]);
    return [
      [states(list), list.message, list.bad],
      [["due"], "Broken settings.", true],
    ];
  },
  "a server that is down pauses the list": async () => {
    const { list, channel } = makeList({});
    channel.answers = async () => false;
    await list.begin(["Why?"]);
    return [
      [states(list), list.message.slice(0, 27)],
      [["due"], "The server does not answer;"],
    ];
  },
  "a problem on the page pauses a list that waits for an answer": async () => {
    const { list, channel } = makeList({});
    channel.press = () => list.fail("Connection errored out.");
    await list.begin(["Why?"]);
    return [
      [states(list), list.message],
      [["due"], "Connection errored out."],
    ];
  },
  "figures of another model do not enter the table": async () => {
    let model = "tiny";
    const { list } = makeList({
      end: () => {
        const reel = listedReel();
        reel.head.model = model;
        model = "other";
        return { reel };
      },
    });
    await list.begin(["Why?", "How?"]);
    return [
      [states(list), list.message],
      [
        ["raced", "due"],
        "This list was raced with tiny, float32, a CPU, 2 threads; Vanilla, Trie; the server now races with other, float32, a CPU, 2 threads; Vanilla, Trie. Begin a new list.",
      ],
    ];
  },
  "other documents, or other fields of the page, do not enter the list": async () => {
    const first = makeList({ end: () => ({ error: "No." }) });
    await first.list.begin(["Why?", "How?"]);
    const kept = first.list.list;
    const resume = async (parts) => {
      const { list, asked } = makeList(parts);
      Object.assign(list, { list: kept, rows: [{ lanes: [] }, undefined] });
      await list.run();
      return [list.message, asked.map(([question]) => question)];
    };
    return [
      [
        await resume({ files: null }),
        await resume({ settings: [1] }),
        await resume({ files: [{ path: "C:\\tmp\\2\\abc\\notes.md" }], settings: [...SETTINGS.slice(0, 4), 512] }),
      ],
      [
        [describeDocuments(["abc/notes.md"]), [""]],
        ["The server has other settings than those of this list; begin a new list.", [""]],
        ["All questions are raced.", ["How?"]],
      ],
    ];
  },
  "settings can be mended until a question has been raced": async () => {
    let refused = true;
    const { list, asked } = makeList({
      answer: () => (refused ? { phase: "refused", message: "trie.n is 200." } : { phase: "waiting", key: "k" }),
    });
    await list.begin(["Why?"]);
    refused = false;
    list.list.settings = ["what was chosen first"];
    await list.run();
    return [
      [asked.length, states(list), list.list.settings],
      [2, ["raced"], SETTINGS],
    ];
  },
  "documents by content and name": () => [
    [
      nameDocuments([{ path: "/a/2/b.md" }, { path: "/x/1/a.md" }]),
      nameDocuments(null),
      describeDocuments([]).slice(0, 43),
      describeDocuments(["1/a.md", "2/b.md"]).slice(0, 48),
    ],
    [
      ["1/a.md", "2/b.md"],
      [],
      "This list was begun on the server's documen",
      "This list was begun on your documents a.md, b.md",
    ],
  ],
  "a list that the browser has kept": async () => {
    const { list } = makeList({});
    const kept = { id: "a", changed: 0, questions: ["Why?", "How?"], settings: SETTINGS, documents: [] };
    list.store.load = async () => ({ list: kept, rows: [undefined, { lanes: [] }] });
    await list.restore();
    const restored = [list.message, list.due];
    await list.discard();
    return [
      [restored, list.questions],
      [["1 of 2 questions are raced; Resume goes on.", [0]], []],
    ];
  },
};
