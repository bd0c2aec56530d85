import {
  describeFacts,
  fastestSettings,
  listCsv,
  makeReport,
} from "../../../specrace/ui/static/questions/question_report.js";
import { HOSTILE, listedRow } from "./fixtures.js";

const LIST = { id: "a", changed: 0, questions: ["Why?", HOSTILE], settings: [], documents: ["1/a.md"] };

export const cases = {
  "a CSV line for each question and lane": () => {
    const csv = listCsv(["=Why?", "How?", "Who?"], [listedRow(2), { error: "Too long." }, undefined]);
    const [head, ...lines] = csv.trimEnd().split("\r\n");
    return [
      [head.split(",").length, lines],
      [
        18,
        [
          '1,\'=Why?,vanilla,yes,1,1,40,yes,identical to vanilla,105,6,2,8,4,no,8,"tiny, float32",2026-01-02T03:04:05',
          '1,\'=Why?,trie,yes,2,3,80,yes,identical to vanilla,102,6,2,8,4,no,8,"tiny, float32",2026-01-02T03:04:05',
          "2,How?,,no: Too long.,,,,,,,,,,,,,,",
          "3,Who?,,no: not raced,,,,,,,,,,,,,,",
        ],
      ],
    ];
  },
  "what a server did not report is left empty": () => {
    const row = listedRow(2);
    const unknown = { tau: 0, tokens_per_s: 0, tokens: 0, steps: 0, drafted: 0, accepted: 0, num_draft: 0 };
    row.lanes = [{ ...row.lanes[1], ...unknown, lane: "ollama", measured: true, has_tokens: false, loops: false }];
    return [
      listCsv(["Why?"], [row]).split("\r\n")[1],
      '1,Why?,ollama,yes,,,,yes,identical to vanilla,102,,,,,,0,"tiny, float32",2026-01-02T03:04:05',
    ];
  },
  "a report that runs and loads nothing": () => {
    const page = new DOMParser().parseFromString(makeReport(LIST, [listedRow(2), listedRow(3)]), "text/html");
    const policy = page.querySelector("meta[http-equiv=Content-Security-Policy]").getAttribute("content");
    return [
      [
        policy,
        page.querySelectorAll("script, img, link, a, button").length,
        page.querySelectorAll("tbody tr").length,
        page.querySelector("tbody tr:last-child th span").textContent === HOSTILE,
        page.querySelector("style").textContent.includes("&"),
        page.querySelector("h1").textContent.slice(0, 21),
        page.compatMode,
      ],
      ["default-src 'none'; style-src 'unsafe-inline'", 0, 2, true, false, "Trie is fastest: 2.5×", "CSS1Compat"],
    ];
  },
  "facts in sentences": () => [
    [
      describeFacts(LIST, [listedRow(2), undefined]),
      describeFacts({ ...LIST, documents: [] }, [{ ...listedRow(2), date: null }, undefined])[0],
    ],
    [
      ["1 of 2 questions raced on the documents a.md, 2026-01-02.", "tiny, float32. Settings: max new tokens 8."],
      "1 of 2 questions raced on the server's documents.",
    ],
  ],
  "the settings of the fastest lane": () => {
    const row = listedRow(2);
    Object.assign(row.lanes[1], { lane: "trie:n=3:static=true", num_draft: 4 });
    const other = structuredClone(row);
    other.lanes[1].num_draft = 7;
    return [
      [JSON.parse(fastestSettings([row, other, undefined])), fastestSettings([listedRow(0.9)])],
      [{ method: "trie", num_draft: 6, options: { n: 3, static: true } }, undefined],
    ];
  },
};
