import {
  Advice,
  Costs,
  listFiles,
  listTried,
  describeGroup,
  describeSearch,
  describeVerdict,
} from "../../../specrace/ui/static/logs/advice.js";
import { takeRecommended } from "../../../specrace/ui/static/lib/gradio.js";
import { HOSTILE, put } from "./fixtures.js";

// `tau`: tokens per step.
const figures = { tau: 2, speedup: 1.9, speedup_low: 1.8, speedup_high: 2.04 };
const best = { lane: "some-lane", options: {}, num_draft: 8, ...figures };
// A recommendation not to draft.
const none = { ...best, lane: "vanilla", num_draft: 0 };

// The advice for an engine; `more` replaces parts of it.
function engine(name, more = {}) {
  const group = { category: HOSTILE, requests: 3, advice: "draft", ...best, best };
  return {
    engine: name,
    title: name.toUpperCase(),
    recommendation: best,
    text: [`On these 4 requests ${HOSTILE}.`, "Costs: none."],
    groups: [group, { ...group, category: "b", requests: 1, advice: "switch drafting off" }],
    not_tested: ["Batches."],
    export: {
      settings: `--${name} '{"a": 1}'\n`,
      synthetic: "--synthetic",
      convention: "The bonus token counts.",
      notes: ["A note."],
      requests: [{ sentence: `3 of 4 requests have ${HOSTILE}.` }],
      files: { "s.json": "{}" },
    },
    ...more,
  };
}

const ADVICE = {
  engines: [engine("vllm"), engine("other", { recommendation: none })],
  requests: 9,
  scored: 4,
  looping: 1,
  left_out: "the page takes 9 of them",
  remarks: [],
  tried: [["some-lane", { n: 3, m: 1 }, 8, 4, 2, 1.9]],
};

// Shows the advice; returns it, its announcements, and a function that finds an element in it.
function showAdvice() {
  const announced = [];
  const advice = new Advice((words) => announced.push(words));
  put().append(advice.node);
  advice.show(ADVICE, "a.jsonl");
  return { advice, announced, find: (selector) => advice.node.querySelector(selector) };
}

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  // A cell is a setting on a request.
  "rounds in words": () => [
    [describeSearch({ requests: 1 }), describeSearch({ settings: 101, requests: 16, done: 1, cells: 4 })],
    ["Reading: 1 request", "Trying 101 settings on 16 requests, 25 %"],
  ],
  "the verdict and its reason": () => [
    [describeVerdict(engine("vllm")), describeVerdict({ title: "vLLM", recommendation: none })],
    [
      ["Use some-lane, up to 8 draft tokens", "Forecast: 1.90× as fast (1.80 to 2.04)"],
      ["Do not draft", "On this log no setting of vLLM is reliably faster than no drafting."],
    ],
  ],
  // `lane` is recommended for the whole log, `best` (some-lane) for the category.
  "advice by category": () => [
    [
      describeGroup({ advice: "draft", lane: "a", best }),
      describeGroup({ advice: "use another lane", lane: "a", best }),
      describeGroup({ advice: "use other settings", lane: "some-lane", best }),
      describeGroup({ advice: "not certain", lane: "a", best }),
      describeGroup({ advice: "switch drafting off", lane: "a", best }),
      describeGroup({ advice: "switch drafting off", lane: "vanilla", best }),
    ],
    [
      "draft",
      "use some-lane there: 1.90×",
      "use some-lane, up to 8 draft tokens, there: 1.90×",
      "not certain",
      "switch drafting off",
      "no draft pays",
    ],
  ],
  "files to save": () => [
    [
      listFiles(engine("vllm")),
      Object.keys(listFiles(engine("t", { export: { ...ADVICE.engines[0].export, settings: "a:\n  b: 1\n" } }))),
    ],
    [
      {
        "vllm.txt": `--vllm '{"a": 1}'\n# The same acceptance, for load tests:\n# The bonus token counts.\n--synthetic\n# A note.\n# 3 of 4 requests have ${HOSTILE}.\n`,
        "s.json": "{}",
      },
      ["t.yaml", "s.json"],
    ],
  ],
  "tried settings, those tried on the most requests first": () => [
    // Lane, options, draft tokens, requests, tokens per step, speedup. Only `n` differs, and only in lane a.
    listTried([
      ["a", { n: 3, m: 1 }, 8, 16, 1.5, 1.4],
      ["a", { n: 5, m: 1 }, 8, 64, 1.2, 1.1],
      ["b", { n: 5 }, 4, 64, 1.3, 1.2],
    ]),
    [
      ["b", "", "4", "64", "1.30", "1.20×"],
      ["a", "n=5", "8", "64", "1.20", "1.10×"],
      ["a", "n=3", "8", "16", "1.50", "1.40×"],
    ],
  ],
  "the tabs show one engine at a time, as text": () => {
    const { advice, find } = showAdvice();
    const first = [find(".advice-line pre").textContent, find(".advice-text p").textContent];
    find("[data-engine=other]").click();
    const pressed = [...advice.tabs.children].map((tab) => tab.getAttribute("aria-pressed"));
    return [
      [
        first,
        pressed,
        find(".advice-verdict b").textContent,
        find(".advice-where").textContent,
        advice.node.querySelectorAll("img").length,
      ],
      [
        [
          `--vllm '{"a": 1}'`,
          `On these 4 requests ${HOSTILE}. Costs: none. 1 request left out: their output loops, which flatters copying. Time ran out: the best settings were scored on 4 of 9 requests. The log has more requests: the page takes 9 of them.`,
        ],
        ["false", "true"],
        "Do not draft",
        "Paste into OTHER: The best setting, if you still want to draft:",
        0,
      ],
    ];
  },
  "a copied line is announced": async () => {
    const { find, announced } = showAdvice();
    const copied = [];
    Object.defineProperty(navigator, "clipboard", {
      value: { writeText: async (text) => copied.push(text) },
      configurable: true,
    });
    find(".advice-line button").click();
    await new Promise((done) => setTimeout(done));
    const word = find(".advice-said").textContent;
    delete navigator.clipboard;
    return [
      [copied, announced, word],
      [[`--vllm '{"a": 1}'`], ["Copied: the settings for VLLM."], "Copied"],
    ];
  },
  "recommended settings can be raced on a page that races": () => {
    const offers = () => Boolean(showAdvice().find("[aria-label='Race this lane with these settings']"));
    const without = offers();
    const host = put(["button", { id: "race" }], ["button", { id: "race-recommended" }]);
    const pressed = [];
    host.addEventListener("click", ({ target }) => pressed.push(target.id));
    const { advice, find } = showAdvice();
    find("[aria-label='Race this lane with these settings']").click();
    const lane = JSON.parse(takeRecommended()).method;
    // For the other engine the advice is not to draft.
    advice.showEngine("other");
    const offersOther = Boolean(find("[aria-label='Race this lane with these settings']"));
    host.remove();
    return [
      [without, pressed, lane, offersOther],
      [false, ["race-recommended"], "some-lane", false],
    ];
  },
  "the reason why there is no advice": () => {
    const { advice } = showAdvice();
    advice.showRefusal(HOSTILE);
    return [advice.node.textContent, HOSTILE];
  },
  "a model's size can be chosen only for a GPU": () => {
    let changes = 0;
    const costs = new Costs(() => changes++);
    costs.fill({ gpus: ["h100", "rtx4090"], sizes: [1, 8], curves: [["assumed-gpu", "a GPU"]], batches: [1, 16] });
    const first = [costs.chosen(), costs.size.disabled];
    costs.curve.value = "h100";
    costs.curve.dispatchEvent(new Event("change"));
    // Later choices of the server do not replace the first ones.
    costs.fill({ gpus: [], sizes: [], curves: [], batches: [] });
    return [
      [first, costs.chosen(), costs.size.disabled, changes, [...costs.curve.options].map((option) => option.text)],
      [
        [{ curve: "assumed-gpu", batch: "1" }, true],
        { curve: "h100-8b", batch: "1" },
        false,
        1,
        ["a GPU", "H100", "RTX 4090"],
      ],
    ];
  },
};
