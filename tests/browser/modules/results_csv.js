import { listCsv } from "../../../specrace/ui/static/questions/results_csv.js";
import { listedRow } from "./fixtures.js";

// Each case returns [actual, expected], which test_modules.py compares.
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
};
