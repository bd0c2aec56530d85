import { describeFacts, fastestSettings, makeReport } from "../../../specrace/ui/static/questions/question_report.js";
import { HOSTILE, listedRow } from "./fixtures.js";

const LIST = { id: "a", changed: 0, questions: ["Why?", HOSTILE], settings: [], documents: ["1/a.md"] };

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
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
    // The median of 4 and 7 is rounded to 6.
    other.lanes[1].num_draft = 7;
    return [
      [JSON.parse(fastestSettings([row, other, undefined])), fastestSettings([listedRow(0.9)])],
      [{ method: "trie", num_draft: 6, options: { n: 3, static: true } }, undefined],
    ];
  },
};
