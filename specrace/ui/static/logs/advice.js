// Shows what a log recommends: for each engine the lane and its settings, ready to paste, and the evidence.
/** @import { AdviceChoices, AdviceGroup, EngineAdvice, LogAdvice, LogProgress, Recommendation } from "../lib/wire.d.ts" */
import { button, make, table } from "../lib/dom.js";
import { downloadBlob } from "../lib/files.js";
import { countOf, formatPercent } from "../lib/format.js";
import { canRace, pressRecommended } from "../lib/gradio.js";
import { withMethod } from "../lib/lanes.js";
import { copyText } from "../lib/share.js";

// How long "Copied" stays visible.
const COPIED_MS = 4000;
// Advice that begins below this share of the window's height is scrolled into view.
const FOLD = 0.7;
// What the server advises for requests on which no draft pays.
const OFF = "switch drafting off";
const FIRST_ENGINE = "vllm";
const FORECAST =
  "A forecast for decoding, from this log and the costs chosen above: no model has run. Prefill is left out.";

/** @param {LogProgress} progress */
export function describeSearch({ settings, requests, done, cells }) {
  return settings === undefined
    ? `Reading: ${countOf(requests, "request")}`
    : `Trying ${countOf(settings, "setting")} on ${countOf(requests, "request")}, ${Math.round((100 * done) / cells)} %`;
}

/** @param {Recommendation} recommendation */
function describeForecast({ speedup, speedup_low: low, speedup_high: high }) {
  const [from, to] = [low, high].map((bound) => bound.toFixed(2));
  return `${speedup.toFixed(2)}× as fast${from === to ? "" : ` (${from} to ${to})`}`;
}

const titleOf = (lane) => withMethod({ lane }).title ?? lane;

/**
 * What to do for an engine, and why.
 * @param {Pick<EngineAdvice, "title" | "recommendation">} advice
 */
export function describeVerdict({ title, recommendation }) {
  const { lane, num_draft: numDraft } = recommendation;
  if (lane === "vanilla")
    return ["Do not draft", `On this log no setting of ${title} is reliably faster than no drafting.`];
  return [
    `Use ${titleOf(lane)}, up to ${countOf(numDraft, "draft token")}`,
    `Forecast: ${describeForecast(recommendation)}`,
  ];
}

/**
 * What to do for a category of requests: `lane` is recommended for the whole log, `best` for this category.
 * @param {Pick<AdviceGroup, "advice" | "best" | "lane">} group
 */
export function describeGroup({ advice, best, lane }) {
  if (advice === OFF) return lane === "vanilla" ? "no draft pays" : OFF;
  if (advice === "draft" || advice === "not certain") return advice;
  const settings = best.lane === lane ? `, up to ${countOf(best.num_draft, "draft token")},` : "";
  return `use ${titleOf(best.lane)}${settings} there: ${best.speedup.toFixed(2)}×`;
}

/**
 * The files that an engine's export can be saved as: {name: text}.
 * @param {Pick<EngineAdvice, "engine" | "export">} advice
 */
export function listFiles({ engine, export: { settings, synthetic, convention, notes, requests, files } }) {
  const loadTest = synthetic ? [`# The same acceptance, for load tests:\n# ${convention}\n${synthetic}`] : [];
  const remarks = [...notes, ...requests.map(({ sentence }) => sentence)];
  const lines = [settings.trimEnd(), ...loadTest, ...remarks.map((remark) => `# ${remark}`)];
  return { [`${engine}.${settings.trimEnd().includes("\n") ? "yaml" : "txt"}`]: `${lines.join("\n")}\n`, ...files };
}

/**
 * A row for each setting that was tried: the lane, those of its options that differ between its settings, draft tokens,
 * requests, tokens per step and speedup.
 * @param {LogAdvice["tried"]} tried
 */
export function listTried(tried) {
  const differs = (lane, key) => new Set(tried.filter((row) => row[0] === lane).map((row) => row[1][key])).size > 1;
  // First the settings that were tried on the most requests (3), and of those the fastest (5).
  return tried
    .toSorted((a, b) => b[3] - a[3] || b[5] - a[5])
    .map(([lane, options, draft, requests, tau, speedup]) => [
      titleOf(lane),
      Object.entries(options)
        .filter(([key]) => differs(lane, key))
        .map(([key, value]) => `${key}=${value}`)
        .join(" "),
      ...[draft, requests, tau.toFixed(2), `${speedup.toFixed(2)}×`].map(String),
    ]);
}

function scroller(label, head, rows) {
  const box = make("div", "scroller");
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", label);
  box.append(table(head, rows, "advice-table"));
  return box;
}

// An element that shows its content once the visitor opens it.
function folded(summary, ...content) {
  const node = make("details");
  node.append(make("summary", "", summary), ...content);
  return node;
}

function list(sentences) {
  const node = make("ul", "advice-list");
  node.append(...sentences.map((sentence) => make("li", "", sentence)));
  return node;
}

function labelled(words, field) {
  const node = make("label", "", words);
  node.append(field);
  return node;
}

// Fields that choose the costs for the forecast: a GPU and a model size, or another cost curve; and a batch size.
export class Costs {
  // `onChange` is called after every choice.
  constructor(onChange) {
    this.node = make("div", "advice-costs");
    this.curve = this.addField("Your GPU", onChange);
    this.size = this.addField("Model size, on a named GPU", onChange);
    this.batch = this.addField("Requests at a time", onChange);
  }

  addField(words, onChange) {
    const field = make("select");
    field.addEventListener("change", () => {
      this.size.disabled = !this.gpus.includes(this.curve.value);
      onChange();
    });
    this.node.append(labelled(words, field));
    return field;
  }

  /**
   * Fills the fields. Later calls change nothing, so that the visitor's choice stays.
   * @param {Omit<AdviceChoices, "engines">} choices
   */
  fill({ gpus, sizes, curves, batches }) {
    if (this.gpus) return;
    this.gpus = gpus;
    const gpuOption = (name) => new Option(name.toUpperCase().replace("RTX", "RTX "), name);
    this.curve.replaceChildren(...curves.map(([name, words]) => new Option(words, name)), ...gpus.map(gpuOption));
    this.size.replaceChildren(...sizes.map((size) => new Option(`${size} billion parameters, 16 bits`, String(size))));
    this.size.value = String(sizes.includes(8) ? 8 : sizes[0]);
    this.size.disabled = true;
    this.batch.replaceChildren(...batches.map((batch) => new Option(String(batch), String(batch))));
  }

  chosen() {
    const isGpu = this.gpus.includes(this.curve.value);
    return { curve: isGpu ? `${this.curve.value}-${this.size.value}b` : this.curve.value, batch: this.batch.value };
  }
}

export class Advice {
  // `announce` has screen readers speak a sentence.
  constructor(announce) {
    this.announce = announce;
    this.node = make("section", "advice");
    this.node.hidden = true;
    this.refusal = "";
    this.engine = FIRST_ENGINE;
  }

  // Shows why there is no advice.
  showRefusal(reason) {
    this.refusal = reason;
    this.node.replaceChildren(make("p", "logs-facts", reason));
    this.node.hidden = false;
  }

  /**
   * @param {LogAdvice} advice
   * @param {string} name
   */
  show(advice, name) {
    this.advice = advice;
    this.refusal = "";
    const head = make("header");
    this.tabs = make("div", "lane-tabs");
    this.tabs.setAttribute("role", "group");
    this.tabs.setAttribute("aria-label", "Your engine");
    for (const { engine, title } of advice.engines) {
      const tab = button(title, `Recommendation for ${title}`, () => this.showEngine(engine));
      tab.dataset.engine = engine;
      this.tabs.append(tab);
    }
    head.append(make("h3", "", "Recommendation for"), this.tabs);
    this.body = make("div", "advice-body");
    const saveJson = () => this.save("specrace-advice.json", JSON.stringify({ log: name, ...advice }, null, 1));
    const tried = folded(
      `All ${advice.tried.length} settings that were tried`,
      scroller(
        "Settings that were tried",
        ["Lane", "Settings", "Draft tokens", "Requests", "Tokens per step", "Forecast"],
        listTried(advice.tried),
      ),
      button("JSON", "Download everything as JSON", saveJson),
    );
    this.node.replaceChildren(head, this.body, tried);
    this.node.hidden = false;
    this.showEngine(this.engine);
    // On a phone the advice may be below the visible part of the page.
    if (this.node.getBoundingClientRect().top > FOLD * innerHeight) this.node.scrollIntoView({ block: "start" });
  }

  showEngine(engine) {
    this.engine = engine;
    for (const tab of this.tabs.querySelectorAll("button"))
      tab.setAttribute("aria-pressed", String(tab.dataset.engine === engine));
    const advice = this.advice.engines.find((row) => row.engine === engine);
    const [what, why] = describeVerdict(advice);
    const verdict = make("p", "advice-verdict");
    verdict.append(make("b", "", what), make("span", "", why));
    const text = make("div", "advice-text");
    const words = [...advice.text, ...this.describeLeftOut()].join(" ").replace(/(\d)x\b/g, "$1×");
    text.append(make("p", "", words), make("p", "", FORECAST));
    const requestSentences = advice.export.requests.map(({ sentence }) => sentence);
    if (requestSentences.length) text.append(list(requestSentences));
    this.body.replaceChildren(verdict, ...this.drawExport(advice), text, ...this.drawGroups(advice));
    this.body.append(folded(`Not tested (${advice.not_tested.length})`, list(advice.not_tested)));
  }

  // Sentences about requests whose figures are doubtful, and about those that the figures leave out.
  describeLeftOut() {
    const { requests, scored, looping, left_out: limit, remarks } = this.advice;
    const sentences = [...remarks];
    if (looping) sentences.push(`${countOf(looping, "request")} left out: their output loops, which flatters copying.`);
    if (scored < requests - looping && scored)
      sentences.push(`Time ran out: the best settings were scored on ${scored} of ${requests} requests.`);
    if (limit) sentences.push(`The log has more requests: ${limit}.`);
    return sentences;
  }

  // The settings to paste into an engine, the files to save, and notes on them.
  /** @param {EngineAdvice} advice */
  drawExport(advice) {
    const { settings, synthetic, convention, notes } = advice.export;
    const isOff = advice.recommendation.lane === "vanilla";
    const remark = isOff ? ` The best setting, if you still want to draft:` : "";
    const files = make("p", "advice-files", "Save: ");
    for (const [name, text] of Object.entries(listFiles(advice)))
      files.append(button(name, `Save ${name}`, () => this.save(name, text)));
    if (canRace() && !isOff)
      files.append(button("Race these settings", "Race this lane with these settings", () => this.race(advice)));
    const nodes = [
      make("p", "advice-where", `Paste into ${advice.title}:${remark}`),
      this.drawPasteLine(settings, advice.title),
      files,
    ];
    const more = [
      ...(synthetic ? [this.drawPasteLine(synthetic, "the load test"), make("p", "", convention)] : []),
      ...(notes.length ? [list(notes)] : []),
    ];
    const summary = synthetic ? "For a load test: the same acceptance, simulated" : "Notes";
    return more.length ? [...nodes, folded(summary, ...more)] : nodes;
  }

  // Settings to paste, with a button that copies them and says so.
  drawPasteLine(settings, title) {
    const node = make("div", "advice-line");
    const code = make("pre", "", settings.trimEnd());
    code.tabIndex = 0;
    code.setAttribute("role", "region");
    code.setAttribute("aria-label", `Settings for ${title}`);
    const status = make("span", "advice-said");
    const copy = button("Copy", `Copy the settings for ${title}`, async () => {
      try {
        await copyText(settings.trimEnd(), node);
        status.textContent = "Copied";
        this.announce(`Copied: the settings for ${title}.`);
      } catch {
        status.textContent = "The browser refuses; select the text and copy it.";
        this.announce(status.textContent);
      }
      setTimeout(() => (status.textContent = ""), COPIED_MS);
    });
    node.append(code, copy, status);
    return node;
  }

  // A table of the advice by category, if there are several.
  /** @param {EngineAdvice} advice */
  drawGroups(advice) {
    if (advice.groups.length < 2) return [];
    const total = advice.groups.reduce((sum, { requests }) => sum + requests, 0);
    const rows = advice.groups.map((group) => [
      group.category,
      `${group.requests} (${formatPercent(group.requests / total)})`,
      `${group.speedup.toFixed(2)}×`,
      describeGroup(group),
    ]);
    return [scroller("Advice by category", ["Category", "Requests", "Forecast", "Advice"], rows)];
  }

  /** @param {EngineAdvice} advice */
  race({ recommendation }) {
    this.node.closest("dialog")?.close();
    pressRecommended(recommendation);
  }

  save(name, text) {
    downloadBlob(new Blob([text]), name);
  }
}
